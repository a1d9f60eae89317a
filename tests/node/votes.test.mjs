// Tests what a lock tells of its nodes while it is extended, by hand and by itself, and when it is lost.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { LeaseLostError, NodeError, QuorumUnreachableError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

describe('the votes of a lock', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  /** @type {any[]} */
  let events
  before(async () => {
    cluster = await startServers(3)
  })
  beforeEach(async () => {
    await cluster.reset()
    // A busy machine is no fault of a node.
    redlock = new Redlock(cluster.urls, { nodeTimeout: 1400 })
    events = []
    redlock.on('error', (error) => events.push(error))
    await (await redlock.acquire('warm', 1000)).release()
  })
  after(() => cluster.close())

  const server = (/** @type {number} */ index) =>
    /** @type {import('./support/servers.mjs').Server} */ (cluster.servers[index])
  const outcomes = (/** @type {{votes: readonly {outcome: string}[]}} */ { votes }) =>
    votes.map(({ outcome }) => outcome)
  const granted = async (/** @type {import('quorlock').Lock} */ lock) =>
    eventually(() => lock.votes.every(({ outcome }) => outcome === 'granted'))

  it('are those of a renewal by itself, whose failures are error events', async () => {
    const lock = await redlock.acquire('a', 6000, { autoExtend: true })
    await granted(lock)
    assert.deepEqual(events, [])
    await server(2).kill()
    await eventually(() => lock.votes[2]?.outcome === 'failed')
    assert.deepEqual(outcomes(lock), ['granted', 'granted', 'failed'])
    await eventually(() => events.length > 0)
    for (const event of events) {
      assert.ok(event instanceof NodeError)
      assert.equal(event.address, lock.votes[2]?.address)
    }
    // Once a renewal, of which there is one every two seconds.
    assert.ok(events.length <= 5, `${events.length}`)
    await lock.release()
    await redlock.quit()
  })

  it('are told for a node that has lost the key, as by node-redlock', async () => {
    const lock = await redlock.acquire('a', 6000, { autoExtend: true })
    await granted(lock)
    await server(1).command('DEL', 'a')
    await eventually(() => events.length > 0)
    assert.equal(events[0].name, 'ResourceLockedError')
    assert.match(events[0].message, /applied to: 0 of the 1 requested resources/)
    await granted(lock) // it was given the key again
    await lock.release()
    await redlock.quit()
  })

  it('are those of an extension by hand, also of one that failed', async () => {
    const lock = await redlock.acquire('a', 30_000)
    await granted(lock)
    await server(2).kill()
    await lock.extend(30_000)
    await eventually(() => lock.votes[2]?.outcome === 'failed')
    await eventually(() => events.length > 0)
    await server(1).kill()
    const before = events.length
    const error = await lock.extend(30_000).catch((caught) => caught)
    assert.ok(error instanceof QuorumUnreachableError)
    assert.deepEqual(outcomes(lock).slice(1), ['failed', 'failed'])
    assert.ok(events.length >= before + 2, `${before}, ${events.length}`)
    await lock.release()
    await redlock.quit()
  })

  it('go with the loss, whether it is told by a renewal or found at the release', async () => {
    const renewed = await redlock.acquire('a', 3000, { autoExtend: true })
    await granted(renewed)
    await Promise.all([0, 1, 2].map((index) => server(index).command('SET', 'a', 'thief')))
    await eventually(() => renewed.signal.aborted)
    const reason = /** @type {LeaseLostError} */ (renewed.signal.reason)
    assert.ok(outcomes(reason).filter((outcome) => outcome === 'refused').length >= 2)
    await assert.rejects(renewed.release(), LeaseLostError)

    const lock = await redlock.acquire('b', 30_000)
    await granted(lock)
    await Promise.all([0, 1, 2].map((index) => server(index).command('SET', 'b', 'thief')))
    const found = await lock.release().catch((caught) => caught)
    assert.ok(found instanceof LeaseLostError)
    assert.ok(outcomes(found).filter((outcome) => outcome === 'refused').length >= 2)
    await redlock.quit()
  })
})

describe('the votes of an error', () => {
  it('can be read of what inherits from it or stands for it', async () => {
    const own = new Redlock(['memory://votes-a'], { retryCount: 0 })
    const lock = await own.acquire('a', 60_000)
    const error = await own.acquire('a', 60_000).catch((caught) => caught)
    assert.equal(error.votes.length, 1)
    assert.equal(error.attempts.length, 1)
    for (const like of [Object.create(error), new Proxy(error, {})]) {
      assert.deepEqual(like.votes, [])
      assert.deepEqual(like.attempts, [])
      assert.equal(like.code, 'LOCK_NOT_ACQUIRED')
    }
    await lock.release()
    await own.quit()
  })
})
