// Tests the events, the figures and the diagnostics channels of a Redlock.
import assert from 'node:assert/strict'
import * as diagnostics from 'node:diagnostics_channel'
import { describe, it } from 'node:test'
import { QuorumUnreachableError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const OWN_NODES = ['memory://', 'memory://', 'memory://']

/**
 * @param {Redlock} redlock
 * @param {string[]} names
 */
function listen(redlock, names) {
  /** @type {any[]} */
  const told = []
  for (const name of names) redlock.on(name, (event) => told.push(event))
  return told
}

describe('an event', () => {
  it('tells of a lock from its acquisition to its release', async () => {
    const redlock = new Redlock(OWN_NODES)
    const told = listen(redlock, ['acquired', 'released'])
    const lock = await redlock.acquire('r', 5000)
    await lock.release()
    await eventually(() => told.length === 2)
    const [acquired, released] = told
    assert.equal(acquired.name, 'acquired')
    assert.deepEqual([acquired.resource, acquired.resources], ['r', ['r']])
    assert.deepEqual([acquired.token, acquired.fencingToken], [lock.value, lock.fencingToken])
    assert.deepEqual([acquired.attempts, acquired.votes.length], [1, 3])
    assert.ok(Math.abs(acquired.at - Date.now()) < 20_000)
    assert.ok(acquired.waited >= 0 && released.heldFor >= 0)
    assert.deepEqual([released.name, released.outcome], ['released', 'released'])
    assert.ok(
      [acquired, acquired.resources, acquired.votes, acquired.votes[0]].every(Object.isFrozen),
    )
    await redlock.quit()
  })

  it('is made for as long as there is a listener', async () => {
    const redlock = new Redlock(OWN_NODES)
    /** @type {any[]} */
    const told = []
    const listener = (/** @type {any} */ event) => told.push(event.name)
    redlock.on('released', listener)
    await (await redlock.acquire('r', 5000)).release()
    await eventually(() => told.length === 1)
    redlock.off('released', listener)
    await (await redlock.acquire('r', 5000)).release()
    const last = listen(redlock, ['released'])
    await (await redlock.acquire('r', 5000)).release()
    await eventually(() => last.length === 1)
    assert.deepEqual(told, ['released'])
    await redlock.quit()
  })

  it('comes to listeners that are added after all were removed', async () => {
    const redlock = new Redlock(OWN_NODES)
    listen(redlock, ['acquired'])
    redlock.removeAllListeners()
    const told = listen(redlock, ['acquired'])
    await (await redlock.acquire('r', 5000)).release()
    await eventually(() => told.length === 1)
    await redlock.quit()
  })

  it('tells of contention and of a loss', async () => {
    const redlock = new Redlock(OWN_NODES)
    const told = listen(redlock, ['contended', 'waiting', 'woken', 'lost'])
    const lock = await redlock.acquire('r', 200)
    lock.signal.addEventListener('abort', () => {})
    await redlock.acquire('r', 5000, { timeout: 5000 })
    const names = () => new Set(told.map(({ name }) => name))
    await eventually(() => names().size === 4)
    const lost = told.find(({ name }) => name === 'lost')
    assert.deepEqual([lost.reason, lost.token], ['expired', lock.value])
    const contended = told.find(({ name }) => name === 'contended')
    assert.ok(contended.holderEndsIn > 0 && contended.holderEndsIn <= 200, contended.holderEndsIn)
    await redlock.quit()
  })
})

describe('stats()', () => {
  it('counts what was done', async () => {
    const redlock = new Redlock(OWN_NODES)
    assert.deepEqual([redlock.stats().held, redlock.stats().rounds], [0, 0])
    const lock = await redlock.acquire('r', 5000)
    assert.equal(redlock.stats().held, 1)
    await assert.rejects(redlock.acquire('r', 5000, { retryCount: 0 }))
    await lock.release()
    const stats = redlock.stats()
    assert.deepEqual([stats.held, stats.rounds, stats.futileRounds], [0, 2, 1])
    assert.deepEqual([stats.acquisitions.acquired, stats.acquisitions.not_acquired], [1, 1])
    assert.equal(stats.holdSeconds.count, 1)
    const [node] = stats.nodes
    assert.deepEqual([node?.address, node?.state, node?.timeouts], ['memory://', 'healthy', 0])
    assert.ok((node?.latencySeconds.count ?? 0) >= 3)
    await redlock.quit()
  })
})

describe('onUnreachable', () => {
  it('lets work that needs no lock go on without a quorum, if that is asked for', async () => {
    const cluster = await startServers(3)
    const redlock = new Redlock(cluster.urls, { retryCount: 0 })
    const told = listen(redlock, ['degraded'])
    /** @type {string[]} */
    const warned = []
    redlock.on('warning', ({ name, message }) => warned.push(`${name}: ${message}`))
    await (await redlock.acquire('cache', 5000)).release()
    for (const server of cluster.servers.slice(0, 2)) await server.kill()
    await assert.rejects(redlock.acquire('cache', 5000), QuorumUnreachableError)
    const done = await redlock.using(
      'cache',
      5000,
      { onUnreachable: 'proceed' },
      async (signal, { lock }) => {
        assert.deepEqual([lock.degraded, lock.isValid, signal.aborted], [true, false, false])
        assert.throws(() => lock.fencingToken, QuorumUnreachableError)
        return 'done'
      },
    )
    assert.equal(done, 'done')
    await eventually(() => told.length === 1)
    await eventually(() =>
      warned.some((text) => text.startsWith("degraded: 'cache' is NOT locked")),
    )
    assert.equal(redlock.stats().acquisitions.degraded, 1)
    await redlock.quit()
    await cluster.close()
  })
})

describe('the diagnostics channels', () => {
  it('follow an acquisition and a hold', async () => {
    const redlock = new Redlock(OWN_NODES)
    /** @type {string[]} */
    const steps = []
    /** @type {any[]} */
    const ends = []
    /** @param {string} name */
    const subscribe = (name) => {
      const step = (/** @type {string} */ what) => (/** @type {any} */ message) => {
        if (message.redlock !== redlock) return
        steps.push(`${name} ${what}`)
        if (what === 'asyncEnd') ends.push({ ...message })
      }
      const none = () => {}
      const all = {
        start: step('start'),
        end: none,
        asyncStart: none,
        asyncEnd: step('asyncEnd'),
        error: step('error'),
      }
      const channel = diagnostics.tracingChannel(`quorlock:${name}`)
      channel.subscribe(all)
      return () => channel.unsubscribe(all)
    }
    const stops = [subscribe('acquire'), subscribe('hold')]
    const lock = await redlock.acquire('r', 5000)
    await assert.rejects(redlock.acquire('r', 5000, { retryCount: 0 }))
    await lock.release()
    await eventually(() => ends.length === 3)
    for (const stop of stops) stop()
    assert.deepEqual(steps, [
      'acquire start',
      'acquire asyncEnd',
      'hold start',
      'acquire start',
      'acquire error',
      'acquire asyncEnd',
      'hold asyncEnd',
    ])
    const [won, failed, held] = ends
    assert.equal(won.result, lock)
    assert.equal(failed.error.code, 'LOCK_NOT_ACQUIRED')
    assert.deepEqual([held.lock, held.outcome], [lock, 'released'])
    await redlock.quit()
  })
})
