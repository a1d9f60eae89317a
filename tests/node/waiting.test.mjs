// Tests that nodes call callers that wait, in the order of their arrival where that is wanted, and that nothing is
// left of those that give up. Many processes in one line are in tests/python/test_fair.py.
import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { ConfigError, QuorumUnreachableError, Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { startPeer } from './support/peers.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/** How many nodes each takes. */
const PEERS = { 'redis-py': 1, 'redlock-py': 3, 'node-redlock': 3 }
/** In milliseconds. A waiter looks again by itself after 3 s: a shorter wait shows that it was called. */
const SOON = 1500
/** Nobody who waits tries again by himself within a test. */
const UNHURRIED = { retryCount: -1, retryDelay: 60_000 }

/** @typedef {import('./support/servers.mjs').Cluster} Cluster */

/** @param {Cluster} cluster */
const places = ({ servers }) =>
  Promise.all(servers.map((server) => server.command('ZCARD', 'quorlock:queue:{r}')))

/**
 * @param {Cluster} cluster
 * @param {number} count
 */
const areWaiting = async (cluster, count) => (await places(cluster)).every((it) => it === count)

/**
 * Whether the first in line would notice any change of the key.
 * @param {Cluster} cluster
 */
async function areWatching({ servers }) {
  const infos = await Promise.all(servers.map((server) => server.command('INFO', 'stats')))
  return infos.every((info) => !info.includes('tracking_total_keys:0\r'))
}

/** @param {Cluster} cluster */
const waitForWaiter = (cluster) =>
  eventually(async () => (await areWaiting(cluster, 1)) && (await areWatching(cluster)))

/** @param {Cluster} cluster */
const connections = ({ servers }) =>
  Promise.all(
    servers.map(async (server) => {
      const lines = (await server.command('CLIENT', 'LIST')).trim().split('\n')
      return lines.filter((/** @type {string} */ line) => !line.includes('cmd=client')).length
    }),
  )

describe('waiting', () => {
  /** @type {Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('ends soon after the release by another manager, and counts as one waiter', async () => {
    const managers = Array.from({ length: 20 }, () => new Redlock(cluster.urls, UNHURRIED))
    const held = await redlock.acquire('r', 60_000)
    const work = async () => {}
    const waiting = Array.from({ length: 5 }, () =>
      managers.map((it) => it.using('r', 60_000, work)),
    ).flat()
    await waitForWaiter(cluster)
    assert.equal(await redlock.waiters('r'), 1)
    assert.equal(await redlock.waiters(['other']), 0)
    await held.release()
    const released = performance.now()
    await waiting[0]
    assert.ok(performance.now() - released < SOON)
    await Promise.all(waiting)
    await eventually(() => areWaiting(cluster, 0))
    assert.equal(await redlock.waiters('r'), 0)
    for (const locks of managers) await locks.close()
  })

  it('ends for each of thousands, also while the event loop is blocked', async () => {
    const held = await redlock.acquire('r', 60_000)
    const all = Array.from({ length: 3000 }, () =>
      redlock.acquire('r', 60_000, { timeout: 300 }).catch((/** @type {unknown} */ it) => it),
    )
    await waitForWaiter(cluster)
    // The results of all pile up.
    for (const blocked = performance.now(); performance.now() < blocked + 1500;);
    for (const error of await Promise.all(all)) assert.ok(error instanceof ResourceLockedError)
    await held.release()
    await eventually(() => areWaiting(cluster, 0))
  })

  it('that is given up leaves nothing', async () => {
    const held = await redlock.acquire('r', 60_000)
    const controller = new AbortController()
    const waiting = redlock.acquire('r', 1000, { ...UNHURRIED, signal: controller.signal })
    await waitForWaiter(cluster)
    controller.abort(new Error('enough'))
    await assert.rejects(waiting, { message: 'enough' })
    await eventually(() => areWaiting(cluster, 0))
    await held.release()
  })

  for (const options of [{}, { fair: true }, { wait: /** @type {const} */ ('poll') }])
    it(`keeps its timeout with ${JSON.stringify(options)}`, async () => {
      const held = await redlock.acquire('r', 60_000)
      const begun = performance.now()
      const waiting = redlock.acquire('r', 1000, { timeout: 500, ...options })
      await assert.rejects(waiting, ResourceLockedError)
      const took = performance.now() - begun
      assert.ok(took > 490 && took < 500 + SOON, String(took))
      await eventually(() => areWaiting(cluster, 0))
      await held.release()
    })

  it('by polling takes no place and no second connection', async () => {
    const [servers, held] = [await startServers(3), 'another']
    after(() => servers.close())
    const locks = new Redlock(servers.urls, { wait: 'poll', retryDelay: 20, retryJitter: 10 })
    for (const server of servers.servers) await server.command('SET', 'r', held, 'PX', 60_000)
    await assert.rejects(locks.acquire('r', 1000, { timeout: 400 }), ResourceLockedError)
    assert.deepEqual(await connections(servers), [1, 1, 1])
    assert.deepEqual(await servers.servers[0]?.keys('quorlock:queue:*'), {})
    await assert.rejects(
      locks.acquire('r', 1000, { timeout: 400, wait: 'push' }),
      ResourceLockedError,
    )
    assert.deepEqual(await connections(servers), [2, 2, 2])
    await locks.close()
    await eventually(async () => (await connections(servers)).every((count) => count === 0))
  })

  for (const [name, count] of Object.entries(PEERS))
    it(`ends soon after the release by ${name}`, async () => {
      const servers = await startServers(count)
      const peer = await startPeer(name, servers.addresses)
      after(() => (peer.close(), servers.close()))
      const locks = new Redlock(servers.urls, UNHURRIED)
      for (let round = 0; round < 3; round++) {
        assert.ok(await peer.acquire('r', 60_000))
        const waiting = locks.acquire('r', 60_000)
        await waitForWaiter(servers)
        const released = performance.now()
        assert.ok(await peer.release('r'))
        const lock = await waiting
        assert.ok(performance.now() - released < SOON)
        await lock.release()
      }
      await locks.close()
    })

  it('in fair mode ends in the order of arrival', async () => {
    const held = await redlock.acquire('r', 60_000, { fair: true })
    /** @type {number[]} */
    const order = []
    /** @type {Promise<void>[]} */
    const waiting = []
    // Managers of different settings share no queue of the process.
    const managers = Array.from(
      { length: 6 },
      (_, number) => new Redlock(cluster.urls, { ...UNHURRIED, retryJitter: number }),
    )
    for (const [number, locks] of managers.entries()) {
      const work = async () => void order.push(number)
      waiting.push(locks.using('r', 60_000, { fair: true }, work))
      await eventually(() => areWaiting(cluster, number + 1))
    }
    assert.equal(await redlock.waiters('r'), 6)
    await held.release()
    await Promise.all(waiting)
    assert.deepEqual(order, [0, 1, 2, 3, 4, 5])
    for (const locks of managers) await locks.close()
  })

  it('in fair mode is for one resource, and for places', async () => {
    await assert.rejects(redlock.acquire(['a', 'b'], 1000, { fair: true }), ConfigError)
    await assert.rejects(
      redlock.using('a', 1000, { fair: true, wait: 'poll' }, () => assert.fail('ran')),
      ConfigError,
    )
    assert.throws(() => new Redlock(cluster.urls, { fair: true, wait: 'poll' }), ConfigError)
    // @ts-expect-error no such word
    await assert.rejects(redlock.acquire('a', 1000, { wait: 'often' }), /"push" or "poll"/)
  })

  it('is not told by too few nodes', async () => {
    const locks = new Redlock(['redis://127.0.0.1:1'])
    await assert.rejects(locks.waiters('r'), QuorumUnreachableError)
    await locks.close()
  })
})
