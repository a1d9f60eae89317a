// Tests the package as users install it: one tarball in an empty directory, for ESM, CommonJS and TypeScript.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { promisify } from 'node:util'
import * as esm from 'quorlock'
import { root } from './support/harness.mjs'

const run = promisify(execFile)
const modules = join(root, 'node_modules')
const script = `
  const redlock = new Redlock(['memory://a', 'memory://b', 'memory://c'])
  redlock.acquire('a', 1000).then((lock) => lock.release()).then(({ outcome }) => console.log(outcome))`

describe('the package', () => {
  /** @type {string} */
  let place
  /** @type {string} */
  let tarball
  before(async () => {
    place = await mkdtemp(join(tmpdir(), 'quorlock-package-'))
    const packed = await run(
      'npm',
      ['pack', '--ignore-scripts', '--loglevel=silent', '--pack-destination', place],
      { cwd: root },
    )
    tarball = join(place, packed.stdout.trim())
    await writeFile(join(place, 'package.json'), '{ "private": true }')
    await run(
      'npm',
      ['install', '--offline', '--no-audit', '--no-fund', '--loglevel=error', tarball],
      { cwd: place },
    )
  })
  after(() => rm(place, { recursive: true, force: true }))

  /** @param {string[]} words */
  const node = async (...words) => (await run(process.execPath, words, { cwd: place })).stdout

  it('holds what it needs and nothing else', async () => {
    const installed = join(place, 'node_modules', 'quorlock')
    const names = await readdir(installed)
    assert.deepEqual(names.sort(), [
      'LICENSE-APACHE',
      'LICENSE-MIT',
      'README.md',
      'bindings-node',
      'package.json',
    ])
    assert.ok(!(await readdir(join(installed, 'bindings-node'))).includes('src'))
    const { scripts, dependencies } = createRequire(join(place, 'x.js'))('quorlock/package.json')
    assert.equal(scripts.postinstall ?? scripts.install ?? scripts.preinstall, undefined)
    assert.equal(dependencies, undefined)
  })

  it('brings the command, with the status that it exits with', async () => {
    const command = join(place, 'node_modules', '.bin', 'quorlock')
    const { version } = createRequire(join(place, 'x.js'))('quorlock/package.json')
    assert.equal((await run(command, ['--version'])).stdout, `quorlock ${version}\n`)
    await assert.rejects(run(command, ['run', 'job']), { code: 64 })
  })

  it('loads in every way that users load it', async () => {
    const heads = [
      ['module', "import { Redlock } from 'quorlock';"],
      ['module', "import Redlock from 'quorlock';"],
      ['module', "import * as all from 'quorlock'; const { Redlock } = all;"],
      ['module', "const { Redlock } = await import('quorlock');"],
      ['commonjs', "const Redlock = require('quorlock');"],
      ['commonjs', "const { Redlock } = require('quorlock');"],
      ['commonjs', "const { default: Redlock } = require('quorlock');"],
      ['commonjs', "const Redlock = require('quorlock').default.Redlock;"],
    ]
    for (const [type, head] of heads)
      assert.equal(await node(`--input-type=${type}`, '-e', head + script), 'released\n', head)
  })

  it('is one and the same in ESM and CommonJS', () => {
    const cjs = createRequire(import.meta.url)('quorlock')
    for (const [name, value] of Object.entries(esm)) assert.equal(cjs[name], value, name)
    assert.equal(cjs, esm.Redlock)
    assert.equal(esm.default, esm.Redlock)
    const own = Object.keys(cjs).filter((name) => !(name in esm))
    assert.deepEqual(
      own,
      ['defaultMaxListeners', 'usingDomains'].filter((name) => own.includes(name)),
    )
  })

  it('has types that hold for every way to resolve them', async () => {
    await symlink(join(modules, '@types'), join(place, 'node_modules', '@types')).catch(() => {})
    for (const name of ['ioredis', 'redis', '@redis', '@ioredis']) {
      await symlink(join(modules, name), join(place, 'node_modules', name))
    }
    for (const name of ['esm.mts', 'commonjs.cts', 'no_interop.cts'])
      await copyFile(join(root, 'tests/node/types', name), join(place, name))
    await copyFile(join(place, 'esm.mts'), join(place, 'bundled.ts'))
    await copyFile(join(place, 'no_interop.cts'), join(place, 'plain.ts'))
    const shared = [
      '--strict',
      '--noEmit',
      '--target',
      'es2022',
      '--lib',
      'es2023,esnext.disposable',
      '--types',
      'node',
    ]
    /** @type {string[][]} */
    const ways = [
      ['--module', 'node16', 'esm.mts', 'commonjs.cts', 'no_interop.cts'],
      ['--module', 'nodenext', 'esm.mts', 'commonjs.cts', 'no_interop.cts'],
      ['--module', 'esnext', '--moduleResolution', 'bundler', '--skipLibCheck', 'bundled.ts'],
    ]
    for (const way of ways)
      await node(join(modules, 'typescript', 'bin', 'tsc'), ...shared, '--skipLibCheck', ...way)
    // TypeScript 5 still knows modules that are not told apart, as many projects have them.
    const old = ['--skipLibCheck', '--esModuleInterop', 'false', '--module']
    for (const way of [
      ['commonjs', '--moduleResolution', 'node10', 'plain.ts'],
      ['node16', 'no_interop.cts', 'commonjs.cts', 'esm.mts'],
      ['esnext', '--moduleResolution', 'bundler', 'plain.ts'],
    ])
      await node(join(modules, 'typescript5', 'bin', 'tsc'), ...shared, ...old, ...way)
    // Our own declarations, without any other library's.
    await writeFile(
      join(place, 'own.mts'),
      "import { Redlock } from 'quorlock'\nvoid new Redlock(['redis://a'])\n",
    )
    await node(
      join(modules, 'typescript', 'bin', 'tsc'),
      ...shared,
      '--module',
      'node16',
      'own.mts',
    )
  })

  it('passes arethetypeswrong', async () => {
    await run(join(modules, '.bin', 'attw'), [tarball, '--format', 'ascii', '--no-color'], {
      cwd: root,
    })
  })

  it('finds its addon in the package of the platform, and says what to do without one', async () => {
    const beside = join(place, 'node_modules', 'quorlock', 'bindings-node')
    const addon = String((await readdir(beside)).find((name) => name.endsWith('.node')))
    const platform = addon.replace('quorlock.', 'quorlock-').replace('.node', '')
    const package_ = join(place, 'node_modules', platform)
    await mkdir(package_)
    await rename(join(beside, addon), join(package_, addon))
    const manifest = { name: platform, version: '0.1.0', main: addon }
    await writeFile(join(package_, 'package.json'), JSON.stringify(manifest))
    const head = "const { Redlock } = require('quorlock');"
    assert.equal(await node('-e', head + script), 'released\n')
    await rm(package_, { recursive: true })
    const words = /has no native addon [^]* on linux [^]*omit=optional/
    await assert.rejects(node('-e', "require('quorlock')"), words)
  })
})
