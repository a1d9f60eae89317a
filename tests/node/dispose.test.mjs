// Tests the release of a lock at the end of an `await using` block (Symbol.asyncDispose).
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { inspect, promisify } from 'node:util'
import { Redis } from 'ioredis'
import { LeaseLostError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../', import.meta.url))
const TSC = [
  join(root, 'node_modules/typescript/bin/tsc'),
  ...[
    '--ignoreConfig',
    '--rootDir',
    join(root, 'tests/node/support'),
    '--module',
    'nodenext',
    '--lib',
    'es2023,esnext.disposable',
  ],
  ...['--types', 'node', '--strict', '--skipLibCheck', '--target'],
]

const redlock = new Redlock(['memory://dispose-a', 'memory://dispose-b', 'memory://dispose-c'], {
  retryCount: 0,
})

describe('Symbol.asyncDispose', () => {
  it('releases the lock', async () => {
    const lock = await redlock.acquire('a', 5000)
    assert.equal(await lock[Symbol.asyncDispose](), undefined)
    assert.equal(lock.validity, 0)
    await (await redlock.acquire('a', 5000)).release()
  })

  it('does nothing to a lock that was released', async () => {
    const lock = await redlock.acquire('a', 5000)
    await lock.release()
    await lock[Symbol.asyncDispose]()
  })

  it('tells that the lock was lost', async () => {
    const lock = await redlock.acquire('a', 20)
    // Not only its validity is over, but the keys are gone: another may have held it.
    while (await redlock.isLocked('a')) await new Promise((resolve) => setImmediate(resolve))
    await assert.rejects(lock[Symbol.asyncDispose](), LeaseLostError)
  })
})

// Compiled by TypeScript for any Node, and as it stands for one that has the syntax (24 and newer).
for (const way of ['compiled', 'native']) {
  const isNative = way === 'native'
  describe(
    `await using, ${way}`,
    { skip: isNative && !hasAwaitUsing() && 'no such syntax' },
    () => {
      /** @type {string} */
      let place
      /** @type {typeof import('./support/await_using.mjs')} */
      let written
      before(async () => {
        const source = join(root, 'tests/node/support/await_using.mts')
        place = await mkdtemp(join(root, 'target', 'await-using-'))
        if (isNative) {
          await run(process.execPath, [...TSC, 'esnext', '--outDir', place, source], { cwd: root })
          const text = await readFile(join(place, 'await_using.mjs'), 'utf8')
          assert.match(text, /await using lock/, 'not compiled away')
        } else
          await run(process.execPath, [...TSC, 'es2022', '--outDir', place, source], { cwd: root })
        written = await import(pathToFileURL(join(place, 'await_using.mjs')).href)
      })
      after(() => rm(place, { recursive: true, force: true }))

      /** @param {import('quorlock').Lock} lock */
      const lose = async (lock) => {
        while (lock.isValid || (await redlock.isLocked('block')))
          await new Promise((resolve) => setImmediate(resolve))
      }

      it('gives the lock back', async () => {
        assert.equal(await written.block(redlock, 5000, async () => {}), 'done')
        await (await redlock.acquire('block', 5000)).release()
      })

      it('tells the loss if the body did not throw', async () => {
        await assert.rejects(written.block(redlock, 20, lose), LeaseLostError)
      })

      it('passes on what the body throws', async () => {
        const mine = new Error('mine')
        const failing = written.block(redlock, 5000, () => Promise.reject(mine))
        await assert.rejects(failing, (error) => error === mine)
      })

      it('tells both as a SuppressedError: the loss, and what the body threw', async () => {
        const mine = new Error('mine')
        const body = async (/** @type {any} */ lock) => {
          await lose(lock)
          throw mine
        }
        await assert.rejects(written.block(redlock, 20, body), (/** @type {any} */ thrown) => {
          // Before Node 24 there is no such class, but an error of that name and shape.
          assert.equal(thrown.name, 'SuppressedError')
          assert.equal(thrown.suppressed, mine)
          assert.ok(thrown.error instanceof LeaseLostError)
          return true
        })
        // using() tells what the routine threw, with the loss as its cause.
        const using = redlock.using('block', 5000, { autoExtend: false }, async (_, { lock }) => {
          await lock.release().catch(() => {})
          throw mine
        })
        await assert.rejects(using, (error) => error === mine)
      })

      it('throws what the page about it takes to pieces', async () => {
        const mine = new Error('mine')
        const lost = { name: 'LeaseLostError' }
        /** @type {[number, (lock: any) => Promise<void>, object[]][]} */
        const cases = [
          [20, lose, [lost]],
          [5000, () => Promise.reject(mine), [mine]],
          [20, async (lock) => lose(lock).then(() => Promise.reject(mine)), [mine, lost]],
          [20, async (lock) => void (await lose(lock), await lock.check()), [lost, lost]],
        ]
        for (const [duration, body, expected] of cases) {
          const caught = await written.block(redlock, duration, body).catch((error) => error)
          const names = errorsOf(caught).map((/** @type {Error} */ { name }) => name)
          assert.deepEqual(
            names,
            expected.map(({ name }) => name),
          )
        }
        const within = async () => {
          await written.block(redlock, 20, async (lock) => {
            await lose(lock)
            await written.pair(redlock, 20)
          })
        }
        const errors = errorsOf(await within().catch((error) => error))
        assert.equal(errors.length, 3)
        assert.ok(errors.every((/** @type {unknown} */ error) => error instanceof LeaseLostError))
      })

      it('closes a Redlock, and spares the clients that were passed to it', async () => {
        const cluster = await startServers(1)
        const client = new Redis(String(cluster.urls[0]))
        try {
          const redlock = await written.manager(() => new Redlock([client]))
          await assert.rejects(redlock.acquire('a', 1000), { code: 'CLOSED' })
          assert.equal(await client.ping(), 'PONG')
        } finally {
          client.disconnect()
          await cluster.close()
        }
      })
    },
  )
}

const page = readFileSync(join(root, 'COMPARE.md'), 'utf8')
/** As COMPARE.md has it. @type {(caught: unknown) => Error[]} */
const errorsOf = new Function(`${/^function errorsOf[^]*?^}/m.exec(page)?.[0]}\nreturn errorsOf`)()

function hasAwaitUsing() {
  try {
    return typeof new Function('return async () => { await using x = null }') === 'function'
  } catch {
    return false
  }
}

describe('a lock', () => {
  it('shows itself in a line', async () => {
    const lock = await redlock.acquire(['invoice:42', 'b'], 9000)
    assert.match(inspect(lock), /^<Lock 'invoice:42', 'b' 8\.\ds left 3\/3 nodes>$/)
    await lock.release()
    assert.match(inspect(lock), /^<Lock 'invoice:42', 'b' released>$/)
  })
})
