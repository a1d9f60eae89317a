// Tests that managers with equal settings share one connection to each server in a process, and nothing else.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, describe, it } from 'node:test'
import { createInterface } from 'node:readline'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const HEAD = `
  import { readdirSync } from 'node:fs'
  import { createInterface } from 'node:readline'
  import { Redis } from 'ioredis'
  import { Redlock } from 'quorlock'
  const [urls] = JSON.parse(process.argv[1])
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const pause = async (word = 'ready') => { console.log(word); await lines.next() }
  const files = () => readdirSync('/proc/self/fd').length
  const use = async (redlock, name = 'r') =>
    (await redlock.acquire(name, 10_000, { timeout: 10_000 })).release()
`

/**
 * A program; gives `next()`, which lets it go on and resolves with the next line that it prints.
 * @param {string[]} urls
 * @param {string} code
 */
function start(urls, code) {
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', HEAD + code, JSON.stringify([urls])],
    { cwd: import.meta.dirname, stdio: ['pipe', 'pipe', 'inherit'] },
  )
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  let pauses = false
  return {
    async next() {
      if (pauses) child.stdin.write('\n')
      pauses = true
      const { value } = await lines.next()
      return value
    },
    async end() {
      if (child.exitCode !== null) return
      child.kill('SIGKILL')
      await once(child, 'close')
    },
  }
}

describe('connections', { skip: process.platform !== 'linux' && 'needs /proc' }, () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3, {
      users: { a: 'on >one >two ~* &* +@all', b: 'on >one ~* &* +@all' },
    })
  })
  after(() => cluster.close())

  /** The names of the clients connected to each server, except the one that asks. */
  const clients = () =>
    Promise.all(
      cluster.servers.map(async (server) => {
        const list = String(await server.command('CLIENT', 'LIST'))
        const others = list.split('\n').filter((line) => line && !line.includes('cmd=client'))
        return others.map((line) => line.split(' ')[0])
      }),
    )
  const counts = async () => (await clients()).map((each) => each.length)

  /**
   * Runs `code`, with what to do between its pauses.
   * @param {string} code
   * @param {(next: () => Promise<string>) => Promise<void>} between
   */
  async function during(code, between) {
    await eventually(async () => (await counts()).every((count) => count === 0))
    const program = start(cluster.urls, code)
    try {
      await between(program.next)
    } finally {
      await program.end()
    }
  }

  it('are one a server for 1,500 managers over the same clients', () =>
    during(
      `
      const clients = urls.map((url) => new Redis(url, { lazyConnect: true }))
      const kept = [new Redlock(clients)]
      await use(kept[0])
      const before = files()
      for (let i = 0; i < 1_500; i += 1) kept.push(new Redlock(clients, { retryCount: i }))
      kept.push(new Redlock(urls.map((url) => new Redis(url, { lazyConnect: true, keyPrefix: 'x:' }))))
      await Promise.all(kept.map((redlock, i) => use(redlock, 'r' + i)))
      await pause(files() - before)
      `,
      async (next) => {
        assert.equal(await next(), '0')
        assert.deepEqual(await counts(), [1, 1, 1])
      },
    ))

  it('do not become more with 10,000 managers that are made and dropped', () =>
    during(
      `
      await use(new Redlock(urls))
      const before = files()
      let most = 0
      for (let i = 0; i < 10_000; i += 1) {
        const redlock = new Redlock(urls)
        if (i % 10 === 0) await use(redlock)
        if (i % 100 === 0) most = Math.max(most, files())
      }
      await pause(most - before)
      `,
      async (next) => {
        assert.equal(await next(), '0')
        assert.deepEqual(await counts(), [1, 1, 1])
      },
    ))

  it('and memory do not become more with managers that are each used and dropped', () =>
    during(
      `
      await use(new Redlock(urls))
      const before = files()
      let [collected, mostAlive, mostFiles] = [0, 0, 0]
      const registry = new FinalizationRegistry(() => (collected += 1))
      for (let i = 1; i <= 2_500; i += 1) {
        const redlock = new Redlock(urls)
        registry.register(redlock)
        await use(redlock)
        mostAlive = Math.max(mostAlive, i - collected)
        if (i % 100 === 0) mostFiles = Math.max(mostFiles, files())
      }
      await pause(JSON.stringify([mostAlive, mostFiles - before]))
      `,
      async (next) => {
        const [alive, files] = JSON.parse(await next())
        // Each takes 80 kB, and looks at its nodes until it is collected.
        assert.ok(alive < 1_100, `${alive} managers at a time`)
        assert.equal(files, 0)
        assert.deepEqual(await counts(), [1, 1, 1])
      },
    ))

  it('differ with the login and the database', () =>
    during(
      `
      const address = urls[0].replace('redis://', '')
      const places = [address, 'a:one@' + address, 'a:two@' + address, 'b:one@' + address, address + '/1']
      const kept = []
      for (const place of places)
        for (let i = 0; i < 3; i += 1) {
          kept.push(new Redlock(['redis://' + place]))
          await use(kept.at(-1))
        }
      await pause()
      `,
      async (next) => {
        assert.equal(await next(), 'ready')
        assert.deepEqual(await counts(), [5, 0, 0])
      },
    ))

  it('stay for the others when one closes, and end at once with the last', () =>
    during(
      `
      const clients = urls.map((url) => new Redis(url, { lazyConnect: true }))
      const [one, two, three] = [new Redlock(clients), new Redlock(clients), new Redlock(urls)]
      const held = await three.acquire('r', 1_000, { autoExtend: true })
      const waiting = one.acquire('r', 1_000, { timeout: 5_000, wait: 'poll' }).catch((error) => error.code)
      await use(two, 'other')
      await pause()
      await one.close()
      await two.quit()
      const code = await waiting
      const before = three.stats().extensions
      while (three.stats().extensions < before + 4) {
        if (!held.isValid) throw new Error('it was not renewed')
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      await held.release()
      await use(three)
      await pause(code)
      await three.close()
      await pause()
      `,
      async (next) => {
        assert.equal(await next(), 'ready')
        const found = await clients()
        assert.deepEqual(await counts(), [1, 1, 1])
        assert.equal(await next(), 'CLOSED')
        assert.deepEqual(await clients(), found)
        assert.equal(await next(), 'ready')
        // Nothing else would end them within these seconds.
        await eventually(async () => (await counts()).every((count) => count === 0), 3_000)
      },
    ))
})
