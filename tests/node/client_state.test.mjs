// Tests that the present state of a client object counts, not its first options: otherwise node-redlock with
// the same clients and this library would lock different keys, and both grant one lock.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, afterEach, before, beforeEach, describe, it } from 'node:test'
import { Redis } from 'ioredis'
import * as peer from 'redlock'
import { ConfigError, QuorumUnreachableError, Redlock } from 'quorlock'
import { setTimeout as sleep } from 'node:timers/promises'
import { any, IOREDIS, OPEN_NODE_REDIS as nodeRedises } from './support/clients.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/**
 * Ways to select database 2 that ioredis does not notice.
 * @type {((client: any) => Promise<unknown>)[]}
 */
const ROUNDABOUT = [
  (client) => client.call('SELECT', '2'),
  (client) => client.pipeline().call('Select', '2').exec(),
  (client) => client.multi().call('SELECT', '2').exec(),
]

describe('the database of a client', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {any[]} */
  let clients = []
  before(async () => void (cluster = await startServers(3)))
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  /** @param {(url: string) => any} make */
  async function connected(make) {
    clients = await Promise.all(cluster.urls.map((url) => make(url)))
    return clients
  }

  afterEach(async () => {
    // Whatever became of the test: an open client keeps this process alive. quit() would not do: one that is
    // not connected and queues nothing refuses it, and tries to connect for ever.
    await Promise.allSettled(clients.map(async (client) => client.disconnect()))
    clients = []
  })

  /**
   * The clients see the lock. One that took longer than the others to tell its database has no key.
   * @param {import('quorlock').Lock} lock
   */
  async function isHeldBy({ resources: [name], value }) {
    const values = await Promise.all(clients.map((client) => client.get(name)))
    const held = values.filter((found) => found === value).length
    assert.ok(
      held >= 2 && held + values.filter((found) => found === null).length === 3,
      String(values),
    )
  }

  /** A lock that node-redlock has on these clients keeps ours out. */
  async function isShared() {
    const lock = await new (any(peer).default)(clients).acquire(['shared'], 20_000)
    const redlock = new Redlock(clients, { retryCount: 0 })
    await assert.rejects(redlock.acquire('shared', 5000), { code: 'LOCK_NOT_ACQUIRED' })
    await lock.release()
    const own = await redlock.acquire('shared', 20_000)
    const theirs = new (any(peer).default)(clients, { retryCount: 0 }).acquire(['shared'], 5000)
    await assert.rejects(theirs, { name: 'ExecutionError' })
    await own.release()
    await redlock.close()
  }

  for (const [name, make] of IOREDIS) {
    it(`is the one that it has selected: ${name}`, async () => {
      await connected(make)
      await Promise.all(clients.map((client) => client.select(2)))
      await isShared()
    })

    it(`is the same after it has connected again: ${name}`, async () => {
      await connected(make)
      await Promise.all(clients.map((client) => client.select(2)))
      for (const client of clients) client.disconnect(true)
      const redlock = new Redlock(clients)
      const lock = await redlock.acquire('again', 20_000)
      await eventually(() => clients.every(({ status }) => status === 'ready'))
      await isHeldBy(lock)
      await lock.release()
    })

    it(`is read while it connects again: ${name}`, async () => {
      clients = [await make(cluster.urls[0])]
      await clients[0].select(2)
      clients[0].disconnect(true)
      await once(clients[0], 'connect')
      // It selects when it is ready, a round trip later; until then it is in the database of its options.
      assert.equal(clients[0].condition.select, 0)
      const redlock = new Redlock(clients)
      assert.match(String(redlock.nodes[0]?.address), /\/2$/)
      await (await redlock.acquire('again', 20_000)).release()
      await redlock.close()
    })

    it(`is refused where the client has not noticed what it has selected: ${name}`, async () => {
      const refused = {
        code: 'CONFIG',
        message: /uses database 2, but takes it for 0 .* select\(2\)/,
      }
      for (const select of ROUNDABOUT) {
        await connected(make)
        await Promise.all(clients.map(select))
        const redlock = new Redlock(clients)
        await assert.rejects(redlock.acquire('a', 20_000), refused)
        await assert.rejects(redlock.isLocked('a'), refused)
        await redlock.close()
        await Promise.all(clients.map((client) => client.select(2)))
        await isShared()
        await Promise.all(clients.map((client) => client.quit()))
      }
    })

    it(`is refused where it will be another once it is connected: ${name}`, async () => {
      await connected(make)
      const selections = clients.map((client) => client.call('SELECT', '2'))
      assert.equal(clients[0].status, 'connecting')
      const redlock = new Redlock(clients)
      await assert.rejects(redlock.acquire('a', 20_000), { code: 'CONFIG', message: /database 2/ })
      await Promise.all(selections)
      await redlock.close()
    })

    it(`is looked at again after a second: ${name}`, async () => {
      await connected(make)
      const redlock = new Redlock(clients)
      const lock = await redlock.acquire('held', 20_000)
      await sleep(1100)
      await Promise.all(clients.map((client) => client.call('SELECT', '2')))
      await assert.rejects(redlock.acquire('a', 5000), { code: 'CONFIG', message: /database 2/ })
      assert.equal((await lock.release()).outcome, 'released')
      await redlock.close()
    })

    it(`need not be told by a client that sends nothing: ${name}`, async () => {
      const [url] = cluster.urls
      const subscribed = make(url)
      await subscribed.subscribe('news')
      const silent = make(url, { enableOfflineQueue: false })
      const off = make(url, { lazyConnect: true })
      clients = [subscribed, silent, off]
      for (const client of clients) {
        const redlock = new Redlock([client])
        redlock.on('warning', ({ message }) => assert.fail(message))
        await (await redlock.acquire('a', 5000)).release()
        await redlock.close()
      }
      assert.equal(off.status, 'wait')
    })

    it(`is not waited for where nothing is to be sent: ${name}`, async () => {
      const client = make('redis://127.0.0.1:1')
      client.on('error', () => {})
      const redlock = new Redlock([client], { retryCount: 0 })
      try {
        for (const state of ['connecting', 'reconnecting']) {
          await eventually(() => client.status === state)
          await assert.rejects(redlock.acquire('a', 5000), /: connection refused/)
        }
      } finally {
        client.disconnect()
        await redlock.close()
      }
    })

    it(`may not change while locks depend on it: ${name}`, async () => {
      await connected(make)
      const redlock = new Redlock(clients)
      const lock = await redlock.acquire('held', 20_000)
      await clients[1].select(1)
      const words = /the client of redis:\/\/127\.0\.0\.1:\d+ uses database 1 .*it used database 0/
      await assert.rejects(redlock.acquire('other', 5000), (error) => {
        assert.ok(error instanceof ConfigError)
        assert.match(error.message, words)
        return true
      })
      await assert.rejects(redlock.isLocked('held'), ConfigError)
      // A held lock is not given up because of it.
      await lock.extend(20_000)
      assert.equal((await lock.release()).outcome, 'released')
    })
  }

  for (const [name, make] of nodeRedises) {
    it(`is the one that it has selected: ${name}`, async () => {
      await connected(make)
      await Promise.all(clients.map((client) => client.select(3)))
      const redlock = new Redlock(clients)
      const lock = await redlock.acquire('a', 20_000)
      await isHeldBy(lock)
      await lock.release()
      await redlock.close()
    })

    it(`may not change while locks depend on it: ${name}`, async () => {
      await connected(make)
      const redlock = new Redlock(clients)
      const lock = await redlock.acquire('held', 20_000)
      await Promise.all(clients.map((client) => client.select(3)))
      const refused = { code: 'CONFIG', message: /uses database 3 .*it used database 0/ }
      const others = async () => {
        while (true) await (await redlock.acquire('other', 5000)).release()
      }
      const before = performance.now()
      await assert.rejects(others, refused)
      const elapsed = performance.now() - before
      assert.ok(elapsed < 2000, `noticed after ${elapsed} ms`)
      await assert.rejects(redlock.isLocked('held'), refused)
      assert.equal((await lock.release()).outcome, 'released')
      await redlock.close()
    })

    it(`counts for the next lock after a pause: ${name}`, async () => {
      await connected(make)
      const redlock = new Redlock(clients)
      await (await redlock.acquire('a', 5000)).release()
      await sleep(1100) // the clients are asked again after a second
      await Promise.all(clients.map((client) => client.select(3)))
      await assert.rejects(redlock.acquire('a', 5000), { code: 'CONFIG' })
      await redlock.close()
    })

    it(`delays no lock while a client is busy: ${name}`, async () => {
      await connected(make)
      const redlock = new Redlock(clients)
      await (await redlock.acquire('a', 5000)).release()
      await sleep(1100) // the clients are asked again after a second
      const waits = clients.map((client) => client.blPop('nothing', 2))
      const before = performance.now()
      await (await redlock.acquire('a', 5000)).release()
      const elapsed = performance.now() - before
      assert.ok(elapsed < 1500, `took ${elapsed} ms`) // they are busy for 2 s
      await Promise.all(waits)
      await redlock.close()
    })

    it(`is waited for within the caller's time: ${name}`, async () => {
      await connected(make)
      const hung = cluster.servers.slice(1)
      for (const server of hung) await server.pause()
      const redlock = new Redlock(clients)
      redlock.on('warning', () => {})
      try {
        const before = performance.now()
        await assert.rejects(redlock.acquire('a', 5000, { timeout: 200 }), {
          code: 'QUORUM_UNREACHABLE',
          message: /has not told within 200 ms which database it uses/,
        })
        // Without a limit they are waited for a second.
        assert.ok(performance.now() - before < 900)
      } finally {
        for (const server of hung) await server.resume()
      }
      await redlock.close()
    })

    for (const options of [{ retryCount: 0 }, { timeout: 200 }, { timeout: 250.5 }])
      it(`is read after a busy turn, too: ${name}, ${JSON.stringify(options)}`, async () => {
        await connected(make)
        const redlock = new Redlock(clients)
        const acquiring = redlock.acquire('a', 5555, options)
        const until = performance.now() + 400
        while (performance.now() < until);
        await (await acquiring).release()
        await redlock.close()
      })

    it(`is waited for no longer than a majority needs: ${name}`, async () => {
      await connected(make)
      await Promise.all(clients.map((client) => client.select(3)))
      await cluster.servers[1]?.pause()
      const redlock = new Redlock(clients)
      try {
        await redlock.acquire('hung', 20_000)
        assert.ok(
          redlock.nodes.every(({ address }) => address.endsWith('/3')),
          'all are equal',
        )
      } finally {
        await cluster.servers[1]?.resume()
      }
      await redlock.close()
    })
  }

  it('that nobody tells is no reason to lock anything', async () => {
    const [, make] = /** @type {any} */ (nodeRedises[2])
    await connected(make)
    const redlock = new Redlock(clients)
    await Promise.all(cluster.servers.map((server) => server.pause()))
    try {
      await assert.rejects(redlock.acquire('a', 20_000), (error) => {
        assert.ok(error instanceof QuorumUnreachableError)
        assert.match(error.message, /has not told within 1000 ms which database it uses/)
        return true
      })
      const [waiting, controller] = [new Redlock(clients), new AbortController()]
      const acquiring = waiting.acquire('a', 20_000, { signal: controller.signal })
      const reason = new Error('enough')
      const start = performance.now()
      controller.abort(reason)
      await assert.rejects(acquiring, reason)
      assert.ok(performance.now() - start < 500)
      await waiting.close()
    } finally {
      await Promise.all(cluster.servers.map((server) => server.resume()))
    }
    await (await redlock.acquire('a', 20_000)).release()
    await redlock.close()
  })

  it('is asked for in spite of an option that the client ignores', async () => {
    const [, make] = /** @type {any} */ (nodeRedises[2])
    clients = [await make(cluster.urls[0], { legacyMode: true })]
    await clients[0].select(3)
    const redlock = new Redlock(clients)
    await (await redlock.acquire('a', 5000)).release()
    assert.match(String(redlock.nodes[0]?.address), /\/3$/)
    await redlock.close()
  })

  it('is told as unknown where the server does not say it', async () => {
    const users = { app: ['on', '>secret', '~*', '&*', '+@all', '-client'] }
    const [server] = await cluster.start(1, { users })
    const [, make] = /** @type {any} */ (nodeRedises[2])
    const client = await make(`redis://app:secret@127.0.0.1:${server?.port}/1`, {
      disableClientInfo: true,
    })
    clients = [client]
    const redlock = new Redlock(clients)
    /** @type {any[]} */
    const told = []
    redlock.on('warning', (warning) => told.push(warning))
    await (await redlock.acquire('a', 5000)).release()
    assert.equal(told[0].name, 'unknown-database')
    assert.match(told[0].message, /taken is database 1, as in its options/)
    await redlock.close()
    await client.quit()
    const login = { username: 'app', password: 'secret', db: 1 }
    clients = IOREDIS.map(([, makeOther]) => makeOther(String(server?.url), login))
    for (const other of clients) {
      const second = new Redlock([other])
      const warning = once(second, 'warning')
      await (await second.acquire('a', 5000)).release()
      await sleep(1100) // it had no connection yet, nor anything to send, and is asked after a second
      await (await second.acquire('a', 5000)).release()
      const [{ name, message }] = await warning
      assert.equal(name, 'unknown-database')
      assert.match(message, /taken is database 1, as it says itself/)
      await second.close()
    }
  })

  it('must be the same for all clients', async () => {
    clients = cluster.urls.map((url, index) => new Redis(url, { db: index, lazyConnect: true }))
    const words =
      /the clients use different databases: the client of \S+ uses database 0 .*\/1 uses/
    assert.throws(() => new Redlock(clients), { code: 'CONFIG', message: words })
    const [, make] = /** @type {any} */ (nodeRedises[1])
    await connected(make)
    await clients[2].select(1)
    const redlock = new Redlock(clients)
    // Whether the odd one answers in time to be among the first, or not.
    await assert.rejects(
      eventually(async () => void (await (await redlock.acquire('a', 5000)).release())),
      { code: 'CONFIG', message: /database 1/ },
    )
    await redlock.close()
  })

  it('does not go by a lock taken over before it is known', async () => {
    const [, make] = /** @type {any} */ (nodeRedises[2])
    await connected(make)
    await Promise.all(clients.map((client) => client.select(3)))
    const redlock = new Redlock(clients)
    redlock.lease('a', 'a'.repeat(40))
    await assert.rejects(redlock.acquire('a', 5000), { code: 'CONFIG', message: /select\(\)/ })
  })
})
