// Tests what becomes of locks while ioredis connects again, and of clients that are wrong for a while.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redlock } from 'quorlock'
import { clientTestbed } from './support/client_testbed.mjs'
import { IOREDIS, OPEN_NODE_REDIS } from './support/clients.mjs'
import { eventually } from './support/wait.mjs'

/** Longer than locks go without asking again. */
const A_SECOND = 1100

const { cluster, clients, connect, redlockOf } = await clientTestbed()

describe('a client that changes', () => {
  /** @param {(url: string, options?: any) => any} make */
  async function connected(make) {
    await connect(make)
    const redlock = redlockOf()
    return redlock
  }

  /**
   * Waits in this process alone, so that nothing is read meanwhile that comes later.
   * @param {() => boolean} condition
   */
  async function soon(condition) {
    const limit = performance.now() + 5000
    while (!condition()) {
      assert.ok(performance.now() < limit, clients.map(({ status }) => status).join())
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  for (const [name, make] of IOREDIS) {
    it(`has no vote while it sends commands to another database: ${name}`, async () => {
      await connected(make)
      await Promise.all(clients.map((client) => client.select(2)))
      const redlock = redlockOf()
      await (await redlock.acquire('a', 5000)).release()
      for (const status of ['connecting', 'connect']) {
        const event = once(clients[2], status)
        clients[2].disconnect(true)
        await event
        const lock = await redlock.acquire('a', 20_000)
        assert.deepEqual(
          lock.votes.map(({ outcome }) => outcome),
          ['granted', 'granted', 'failed'],
        )
        await lock.release()
        await soon(() => clients[2].status === 'ready')
      }
      // Without a majority, a lock waits for them.
      const again = clients.map((client) => once(client, 'connecting'))
      for (const client of clients) client.disconnect(true)
      await Promise.all(again)
      const { value } = await redlock.acquire('b', 20_000)
      assert.ok(clients.filter(({ status }) => status === 'ready').length > 1)
      await soon(() => clients.every(({ status }) => status === 'ready'))
      const seen = await Promise.all(clients.map((client) => client.get('b')))
      assert.ok(seen.filter((found) => found === value).length > 1, String(seen))
    })

    it(`has no vote after it could not connect again: ${name}`, async () => {
      const proxy = await cluster.servers[2]?.proxy()
      assert.ok(proxy)
      const urls = [...cluster.urls.slice(0, 2), proxy.url]
      const retryStrategy = (/** @type {number} */ n) => (n < 4 ? 20 : 2000)
      await connect(make, urls, { retryStrategy })
      for (const client of clients) client.on('error', () => {})
      await Promise.all(clients.map((client) => client.select(2)))
      const manager = redlockOf()
      await (await manager.acquire('a', 5000)).release()
      await proxy.refuse()
      // Healed during a long delay, so that it has not connected again before the lock is asked for.
      await eventually(() => clients[2].retryAttempts > 3)
      await proxy.heal()
      assert.equal(clients[2].status, 'reconnecting')
      const lock = await manager.acquire('a', 20_000)
      assert.match(String(lock.votes[2]?.error), /left out of new locks/)
      await lock.release()
      await eventually(async () => {
        const next = await manager.acquire('a', 20_000)
        await next.release()
        return next.votes[2]?.outcome === 'granted'
      })
      await proxy.close()
    })

    it(`is waited for while it is not connected, as long as the call waits: ${name}`, async () => {
      const proxies = await Promise.all(cluster.servers.map((server) => server.proxy()))
      const retryStrategy = (/** @type {number} */ n) => (n < 4 ? 20 : 2500)
      await connect(
        make,
        proxies.map(({ url }) => url),
        { retryStrategy },
      )
      for (const client of clients) client.on('error', () => {})
      await Promise.all(clients.map((client) => client.select(2)))
      const redlock = redlockOf()
      await (await redlock.acquire('a', 5000)).release()
      for (const proxy of proxies) await proxy.refuse()
      await eventually(() => clients.every(({ retryAttempts }) => retryAttempts > 3))
      for (const proxy of proxies) await proxy.heal()
      const begun = performance.now()
      const lock = await redlock.acquire('a', 20_000, { timeout: 30_000 })
      assert.ok(performance.now() - begun > 1000, 'longer than calls without a timeout')
      await lock.release()
    })

    it(`is not asked before it is ready: ${name}`, async () => {
      await cluster.servers[0]?.pause()
      try {
        await connect(make, cluster.urls.slice(0, 1))
        clients[0].on('error', () => {})
        await eventually(() => clients[0].status === 'connect')
        const redlock = redlockOf({ retryCount: 0 })
        await assert.rejects(redlock.acquire('a', 5000), { code: 'QUORUM_UNREACHABLE' })
        assert.equal(clients[0].offlineQueue.length, 0)
      } finally {
        await cluster.servers[0]?.resume()
      }
    })

    it(`may select before the first lock: ${name}`, async () => {
      const manager = await connected(make)
      const selections = clients.map((client) => client.select(2))
      const { value } = await manager.acquire('a', 20_000)
      await Promise.all(selections)
      assert.equal(await clients[0].get('a'), value)
      assert.ok(manager.nodes.every(({ address }) => address.endsWith('/2')))
      await Promise.all(clients.map((client) => client.select(3)))
      await assert.rejects(manager.acquire('b', 5000), {
        code: 'CONFIG',
        message: /it used database 2/,
      })
    })
  }

  for (const [name, make] of [...OPEN_NODE_REDIS, ...IOREDIS])
    it(`is used again once it is right again: ${name}`, async () => {
      const manager = await connected(make)
      /** @param {string} db */
      const select = (db) =>
        clients[2].call === undefined
          ? clients[2].sendCommand(['SELECT', db])
          : clients[2].call('SELECT', db)
      await clients[2].ping()
      const lock = await manager.acquire('held', 900, { autoExtend: true })
      await sleep(A_SECOND)
      await select('2')
      const refused = { code: 'CONFIG', message: /uses database 2/ }
      for (const _ of [1, 2, 3]) await assert.rejects(manager.acquire('a', 5000), refused)
      // No renewal makes a key there, as on the node of one that has not told.
      await cluster.servers[2]?.command('DEL', 'held')
      await sleep(900)
      assert.equal((await cluster.values('held'))[2], null)
      await select('0')
      await (await manager.acquire('a', 5000)).release()
      await eventually(async () => (await cluster.values('held'))[2] === lock.value)
      await lock.release()
      // What was wrong ends with the connection, too.
      await select('2')
      await sleep(A_SECOND)
      await assert.rejects(manager.acquire('a', 5000), refused)
      clients[2].disconnect()
      await eventually(() => clients[2].isOpen === false || clients[2].status === 'end')
      await (await manager.acquire('a', 5000)).release()
    })
})
