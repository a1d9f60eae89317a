// Tests nodes that forget locks, or free them early: with the guards no other client gets the lock, and
// without them one does.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { LockError, QuorumUnreachableError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/** @typedef {import('./support/servers.mjs').Server} Server */
/** @typedef {'old' | 'new' | 'one-sided'} Which */

// Of locks that must outlast a schedule, however slow the machine is.
const TTL = 20_000
// Of locks whose end is waited for.
const SHORT = 4000
// How long a second client tries to get in.
const PATIENCE = 1500
const QUARANTINED = /may have forgotten locks|locks among them|clock was set forward/
const patient = { retryCount: -1, retryDelay: 50, retryJitter: 20 }

describe('the guards', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(0)
  })
  after(() => cluster.close())

  /**
   * @param {Redlock} redlock
   * @param {number} [ttl]
   */
  const warmUp = async (redlock, ttl = TTL) => {
    await (await redlock.acquire('warm', ttl)).release()
    await eventually(() => redlock.nodes.every(({ state }) => state === 'healthy'))
  }

  /**
   * A lock that is held on A and C of three; B is out of its holder's reach, and free.
   * @param {object} options of the servers
   * @param {object} guards settings of those who come second
   * @param {(servers: Server[], client: (which: Which) => Promise<Redlock>) => Promise<void>} play
   */
  const scene = async (options, guards, play) => {
    const servers = await cluster.start(3, options)
    const [a, b, c] = /** @type {[Server, Server, Server]} */ (servers)
    const [toA, toB] = [await a.proxy(), await b.proxy()]
    const all = [a.url, b.url, c.url]
    const holders = new Redlock([a.url, toB.url, c.url])
    const old = new Redlock(all, { ...patient, ...guards })
    const clients = [holders, old]
    try {
      for (const redlock of clients) await warmUp(redlock)
      await toB.refuse()
      await eventually(() => holders.nodes[1]?.state === 'down')
      const holder = await holders.acquire('r', TTL)
      assert.equal(await b.command('GET', 'r'), null)
      await play(servers, async (which) => {
        if (which === 'old') return old
        if (which === 'one-sided') await toA.refuse()
        const urls = which === 'new' ? all : [toA.url, b.url, c.url]
        const redlock = new Redlock(urls, { ...patient, ...guards })
        clients.push(redlock)
        return redlock
      })
      assert.ok(holder.validity > 0, 'the schedule took too long to mean anything')
    } finally {
      await Promise.all(clients.map((redlock) => redlock.quit()))
      await Promise.all(servers.map((server) => server.kill()))
    }
  }

  /** @param {Redlock} redlock */
  const tryToGetIn = (redlock) => redlock.acquire('r', TTL, { timeout: PATIENCE })

  /** @param {Promise<unknown>} attempt */
  const isQuarantined = (attempt) =>
    assert.rejects(attempt, (error) => {
      assert.ok(error instanceof LockError)
      assert.match(error.message, QUARANTINED)
      return true
    })

  for (const which of /** @type {Which[]} */ (['old', 'new', 'one-sided'])) {
    it(`end the crash-recovery schedule in a refusal, for a client that is ${which}`, () =>
      scene({}, {}, async ([, , c], client) => {
        await c?.restart()
        await isQuarantined(tryToGetIn(await client(which)))
      }))

    it(`end the clock-jump schedule in a refusal, for a client that is ${which}`, async (test) => {
      if (!(await cluster.hasClocks())) return test.skip('clocks can be set on Linux alone')
      await scene({ clock: true }, {}, async ([, , c], client) => {
        await c?.setClock(40)
        await isQuarantined(tryToGetIn(await client(which)))
      })
    })
  }

  it('hold a node back that is flushed under a held lock', () =>
    scene({}, {}, async ([, , c], client) => {
      await c?.flush()
      await isQuarantined(tryToGetIn(await client('old')))
    }))

  for (const [how, forget] of /** @type {[string, (c: Server) => Promise<unknown>][]} */ ([
    ['restarts', (c) => c.restart()],
    ['is flushed', (c) => c.flush()],
  ])) {
    it(`keep a second holder out that gets in without them when a node ${how}`, () =>
      scene({}, { restartGuard: 'off', clockGuard: false }, async ([, , c], client) => {
        await forget(/** @type {Server} */ (c))
        await (await tryToGetIn(await client('old'))).release()
      }))
  }

  it('tell of a majority that restarts, and how much time is left', async () => {
    const servers = await cluster.start(3)
    const redlock = new Redlock(
      servers.map(({ url }) => url),
      { maxTtl: SHORT },
    )
    await warmUp(redlock, 1000)
    const [a, b] = /** @type {[Server, Server]} */ (servers)
    const begun = performance.now()
    await a.restart()
    await b.restart()
    await eventually(() => redlock.nodes.slice(0, 2).every(({ state }) => state === 'quarantined'))
    await assert.rejects(redlock.acquire('r', 1000, { retryCount: 0 }), (error) => {
      assert.ok(error instanceof QuorumUnreachableError)
      assert.match(error.message, /2 of 3 nodes in quarantine, [\d.]+ m?s left/)
      return true
    })
    const lock = await redlock.acquire('r', 1000, { timeout: 5 * SHORT })
    assert.ok(performance.now() - begun >= SHORT)
    await lock.release()
    await redlock.quit()
  })
})
