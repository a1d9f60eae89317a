// Tests that nothing is locked by a client object that has not told its database: where its answer comes late or never,
// its connection is cut, or this process is too busy to read.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redlock } from 'quorlock'
import { clientTestbed } from './support/client_testbed.mjs'
import { IOREDIS, OPEN_NODE_REDIS } from './support/clients.mjs'
import { eventually } from './support/wait.mjs'

const MOVED = { code: 'CONFIG', message: /uses database 2 .*it used database 0/ }
const UNTOLD = { code: 'QUORUM_UNREACHABLE', message: /has not told within \d+ ms which database/ }
/** Longer than locks go without asking again. */
const A_SECOND = 1100

/** @param {number} millis */
function keepBusy(millis) {
  const end = performance.now() + millis
  while (performance.now() < end);
}

const { cluster, clients, connect, redlockOf } = await clientTestbed()

describe('a client that has not told its database', () => {
  /**
   * A Redlock of one client for each server.
   * @param {(url: string, options?: any) => any} make
   */
  async function connected(make, urls = cluster.urls, options = {}) {
    await connect(make, urls, options)
    const redlock = redlockOf()
    redlock.on('warning', ({ name }) => assert.notEqual(name, 'unknown-database'))
    return redlock
  }

  /** Waits for a renewal of the lock. */
  async function renewed() {
    let least = Infinity
    await eventually(async () => {
      const left = Number(await cluster.servers[0]?.command('PTTL', 'a'))
      const isRenewed = left > least
      least = left
      return isRenewed
    })
  }

  for (const [name, make] of OPEN_NODE_REDIS) {
    it(`is asked again where its connection was cut: ${name}`, async () => {
      const proxy = await cluster.servers[0]?.proxy()
      assert.ok(proxy)
      const manager = await connected(make, [proxy.url])
      await clients[0].select(2)
      await proxy.stall('to_client')
      const asked = await proxy.expect('INFO')
      const acquiring = manager.acquire('a', 20_000)
      await asked.wait()
      await proxy.reset()
      await proxy.heal()
      const { value } = await acquiring
      assert.equal(await clients[0].get('a'), value)
      await proxy.close()
    })

    it(`is asked again where it queues nothing while it connects: ${name}`, async () => {
      const proxy = await cluster.servers[0]?.proxy()
      assert.ok(proxy)
      const options = { disableOfflineQueue: true, socket: { reconnectStrategy: () => 20 } }
      const manager = await connected(make, [proxy.url], options)
      await clients[0].select(2)
      await proxy.refuse()
      await eventually(() => !clients[0].isReady)
      const acquiring = manager.acquire('a', 20_000)
      await proxy.heal()
      const { value } = await acquiring
      assert.equal(await clients[0].get('a'), value)
      await proxy.close()
    })

    it(`is asked again once it has connected anew: ${name}`, async () => {
      const manager = await connected(make)
      await Promise.all(clients.map((client) => client.sendCommand(['SELECT', '2'])))
      await (await manager.acquire('a', 5000)).release()
      // It forgets what it has selected in this way.
      const again = clients.map((client) => new Promise((resolve) => client.once('ready', resolve)))
      await Promise.all(
        cluster.servers.map((each) => each.command('CLIENT', 'KILL', 'TYPE', 'normal')),
      )
      await Promise.all(again)
      const refused = { code: 'CONFIG', message: /uses database 0 .*it used database 2/ }
      await assert.rejects(manager.acquire('a', 20_000), refused)
    })

    it(`keeps its node out while it is subscribed, or is told: ${name}`, async () => {
      const manager = await connected(make, cluster.urls.slice(0, 1))
      await clients[0].select(2)
      await clients[0].subscribe('news', () => {})
      try {
        const { value } = await manager.acquire('a', 20_000)
        await clients[0].unsubscribe('news')
        assert.equal(await clients[0].get('a'), value)
      } catch (error) {
        const { code, message } = /** @type {import('quorlock').LockError} */ (error)
        assert.equal(code, UNTOLD.code)
        assert.match(message, /which database it uses \(ERR Can't execute/)
        await clients[0].unsubscribe('news')
        await (await manager.acquire('a', 20_000)).release()
      }
    })

    it(`has its answer read after a busy turn: ${name}`, async () => {
      const manager = await connected(make)
      await (await manager.acquire('a', 5000)).release()
      await sleep(A_SECOND)
      await Promise.all(clients.map((client) => client.select(2)))
      for (const millis of [25, 60]) {
        const acquiring = manager.acquire('a', 20_000)
        keepBusy(millis)
        await assert.rejects(acquiring, MOVED)
      }
    })

    for (const options of [{}, { timeout: 10_000 }, { retryCount: -1 }])
      it(`has all its time in a busy process: ${name}, ${JSON.stringify(options)}`, async () => {
        const manager = await connected(make)
        const acquiring = manager.acquire('a', 5000, options)
        keepBusy(1500)
        await (await acquiring).release()
      })

    it(`has all its time in a busy process while it connects: ${name}`, async () => {
      const manager = await connected(make, cluster.urls)
      await Promise.all(clients.map((client) => client.disconnect()))
      for (const client of clients) client.connect().catch(() => {})
      const acquiring = manager.acquire('a', 5000, { timeout: 1200 })
      keepBusy(1500)
      await (await acquiring).release()
    })

    it(`may tell while a lock is being won: ${name}`, async () => {
      const manager = await connected(make)
      await (await manager.acquire('a', 5000)).release()
      await sleep(A_SECOND)
      await Promise.all(clients.map((client) => client.select(2)))
      await Promise.all(cluster.servers.map((server) => server.pause()))
      const refused = assert.rejects(manager.acquire('a', 20_000), MOVED)
      await sleep(300) // longer than an answer is waited for
      for (const { pid } of cluster.servers) process.kill(Number(pid), 'SIGCONT')
      keepBusy(500) // until the lock is won; the answers wait to be read
      await Promise.all(cluster.servers.map((server) => server.resume()))
      await refused
      await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    })

    it(`is asked again after a lock was waited for: ${name}`, async () => {
      const manager = await connected(make)
      const other = new Redlock(cluster.urls)
      const lock = await other.acquire('a', 20_000)
      const refused = assert.rejects(manager.acquire('a', 20_000, { timeout: 10_000 }), MOVED)
      await sleep(A_SECOND)
      await Promise.all(clients.map((client) => client.select(2)))
      await lock.release()
      await refused
      await other.close()
    })

    it(`gets no key on its server until it has told it: ${name}`, async () => {
      const manager = await connected(make)
      const busy = clients[2].sendCommand(['BLPOP', 'something', '0'])
      const lock = await manager.acquire('a', 1500, { autoExtend: true })
      for (const _ of [1, 2]) await renewed()
      assert.deepEqual(await cluster.values('a'), [lock.value, lock.value, null])
      await cluster.servers[2]?.command('RPUSH', 'something', 'x')
      await busy
      const everywhere = async (/** @type {import('quorlock').Lock} */ { resources, value }) =>
        (await cluster.values(String(resources[0]))).every((held) => held === value)
      await eventually(() => everywhere(lock)) // by renewal
      const next = await manager.acquire('b', 20_000)
      await eventually(() => everywhere(next))
      await lock.release()
    })

    it(`gives its node no vote: ${name}`, async () => {
      const manager = await connected(make)
      await clients[2].select(2)
      const busy = clients[2].sendCommand(['BLPOP', 'nothing', '1.5'])
      // Another has the lock by these clients: on the second node, and in database 2 of the third.
      await cluster.servers[1]?.command('SET', 'a', 'other')
      const failed = { name: 'ExecutionError', message: /left out of new locks/ }
      await assert.rejects(manager.acquire('a', 20_000, { retryCount: 0 }), failed)
      await eventually(async () => (await clients[0].get('a')) === null)
      await cluster.servers[1]?.command('DEL', 'a')
      await busy
      await assert.rejects(manager.acquire('a', 20_000), { code: 'CONFIG', message: /database 2/ })
    })

    it(`does not count if it has connected anew meanwhile: ${name}`, async () => {
      const manager = await connected(make)
      const other = new Redlock(cluster.urls)
      const lock = await other.acquire('a', 20_000)
      const refused = assert.rejects(manager.acquire('a', 20_000, { timeout: 10_000 }), UNTOLD)
      await eventually(async () => (await other.waiters('a')) === 1)
      const id = await clients[2].sendCommand(['CLIENT', 'ID'])
      const ready = new Promise((resolve) => clients[2].once('ready', resolve))
      const busy = ready.then(() => clients[2].sendCommand(['BLPOP', 'something', '0']))
      await cluster.servers[2]?.command('CLIENT', 'KILL', 'ID', id)
      await ready
      await cluster.servers[1]?.command('SET', 'a', 'other') // so that the third node is needed
      await lock.release()
      await refused
      await eventually(async () => (await cluster.values('a')).filter(Boolean).length === 1)
      await cluster.servers[2]?.command('RPUSH', 'something', 'x')
      await busy
      await other.close()
    })

    it(`is waited for a second by each call: ${name}`, async () => {
      const manager = await connected(make, cluster.urls.slice(0, 1))
      await cluster.servers[0]?.pause()
      try {
        const first = assert.rejects(manager.acquire('a', 5000), UNTOLD)
        await new Promise((resolve) => setTimeout(resolve, 500)) // late, but in time for the first one's wait
        const begun = performance.now()
        await assert.rejects(manager.acquire('b', 5000), UNTOLD)
        assert.ok(performance.now() - begun > 900)
        await first
      } finally {
        await cluster.servers[0]?.resume()
      }
    })

    it(`is not told of once its Redlock is closed: ${name}`, async () => {
      const manager = await connected(make, cluster.urls.slice(0, 1))
      await cluster.servers[0]?.pause()
      try {
        await assert.rejects(manager.acquire('a', 5000, { timeout: 100 }), UNTOLD)
        await manager.close()
        clients[0].disconnect()
      } finally {
        await cluster.servers[0]?.resume()
      }
      await eventually(() => !clients[0].isOpen)
    })
  }

  for (const [name, make] of IOREDIS)
    it(`is asked as soon as it is connected: ${name}`, async () => {
      const manager = await connected(make)
      const acquiring = manager.acquire('a', 5000)
      assert.equal(clients[0].status, 'connecting')
      const selections = clients.map((client) => client.call('SELECT', '2'))
      await assert.rejects(acquiring, { code: 'CONFIG', message: /database 2/ })
      await Promise.all(selections)
    })
})
