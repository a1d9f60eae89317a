// Tests what code for node-redlock 5 relies on: names, messages, statistics, events. Compares with the real
// package where possible.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Redis } from 'ioredis'
import * as peer from 'redlock'
import Default, * as ours from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const {
  ExecutionError,
  Lock,
  LockError,
  LockNotHeldError,
  QuorumUnreachableError,
  Redlock,
  ResourceLockedError,
} = ours

/** @param {unknown} value */
const any = (value) => /** @type {any} */ (value)

describe('a drop-in for node-redlock', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redis[]} */
  let clients
  before(async () => {
    cluster = await startServers(3)
    clients = cluster.urls.map((url) => new Redis(url, { lazyConnect: true }))
  })
  beforeEach(() => cluster.reset())
  after(async () => {
    for (const client of clients) client.disconnect()
    await cluster.close()
  })

  it('exports what it exports, and has its methods and settings', () => {
    assert.equal(Default, Redlock)
    const theirs = /** @type {any} */ (peer)
    for (const name of Object.keys(theirs)) assert.ok(name in ours, name)
    const ofPeer = new theirs.default(clients)
    const own = new Redlock(clients)
    for (const name of ['acquire', 'using', 'extend', 'release', 'quit', 'on']) {
      assert.equal(typeof any(own)[name], typeof ofPeer[name], name)
    }
    assert.deepEqual([...own.clients], [...ofPeer.clients])
    for (const [name, value] of Object.entries(ofPeer.settings))
      assert.equal(any(own.settings)[name], value, name)
  })

  for (const [name, Class] of /** @type {[string, any][]} */ ([
    ['node-redlock', any(peer).default],
    ['quorlock', Redlock],
  ])) {
    it(`runs its README: ${name}`, async () => {
      const redlock = new Class(clients, {
        driftFactor: 0.01,
        retryCount: 10,
        retryDelay: 20,
        retryJitter: 20,
        automaticExtensionThreshold: 500,
      })
      let lock = await redlock.acquire(['a'], 5000)
      const first = lock
      assert.equal(lock.redlock, redlock)
      assert.ok(lock.expiration > Date.now())
      lock = await lock.extend(60_000)
      assert.equal(lock.value, first.value)
      assert.deepEqual(lock.resources, ['a'])
      assert.ok(lock.expiration - Date.now() > 50_000)
      lock = await redlock.extend(lock, 70_000)
      assert.ok(lock.expiration - Date.now() > 60_000)
      const [stats] = await Promise.all(lock.attempts)
      // A node that is being told how long the lock lasts may vote too late to count.
      assert.ok(any(stats).votesFor.size >= 2)
      const released = await redlock.release(lock)
      assert.equal(lock.expiration, 0)
      assert.equal((await released.attempts[0]).membershipSize, 3)
      const value = await redlock.using(
        ['a', 'b'],
        5000,
        { retryCount: 5 },
        async (/** @type {any} */ signal) => {
          assert.equal(signal.aborted, false)
          return 'done'
        },
      )
      assert.equal(value, 'done')
    })

    it(`says the same of a lock that is held: ${name}`, async () => {
      const redlock = new Class(clients, { retryCount: 2, retryDelay: 5, retryJitter: 5 })
      const lock = await redlock.acquire(['a'], 5000)
      /** @type {any[]} */
      const events = []
      redlock.on('error', (/** @type {Error} */ error) => events.push(error))
      const error = await redlock
        .acquire(['a', 'b'], 5000)
        .catch((/** @type {unknown} */ caught) => caught)
      assert.equal(
        error.constructor.name === 'ExecutionError' || error instanceof ExecutionError,
        true,
      )
      assert.equal(error.name, 'ExecutionError')
      assert.match(
        error.message,
        /^The operation was unable to achieve a quorum during its retry window\./,
      )
      assert.equal(error.attempts.length, 3)
      for (const stats of await Promise.all(error.attempts)) {
        assert.equal(stats.membershipSize, 3)
        assert.equal(stats.quorumSize, 2)
        assert.ok(stats.votesAgainst.size >= 2)
        for (const [client, vote] of stats.votesAgainst) {
          assert.ok(clients.includes(client))
          if (vote.name !== 'ResourceLockedError') continue
          assert.equal(
            vote.message,
            'The operation was applied to: 0 of the 2 requested resources.',
          )
        }
      }
      assert.ok(
        events.filter(({ name }) => name === 'ResourceLockedError').length >= 6,
        `${events.length}`,
      )
      await lock.release()
    })

    it(`does not crash on an error event without a listener: ${name}`, async () => {
      const redlock = new Class(clients)
      redlock.emit('error', new Error('unheard'))
    })

    it(`refuses a duration that is no integer: ${name}`, async () => {
      const redlock = new Class(clients)
      const words = /Duration must be an integer value in milliseconds\./
      await assert.rejects(redlock.acquire(['a'], 5.5), words)
      await assert.rejects(
        redlock.using(['a'], 5.5, async () => {}),
        words,
      )
      const lock = await redlock.acquire(['a'], 5000)
      await assert.rejects(lock.extend(5.5), words)
      await lock.release()
      assert.throws(
        () => new Class([]),
        /Redlock must be instantiated with at least one redis client\./,
      )
    })

    it(`refuses to extend what has expired: ${name}`, async () => {
      const redlock = new Class(clients)
      const lock = await redlock.acquire(['a'], 60)
      await eventually(() => lock.expiration < Date.now())
      await assert.rejects(lock.extend(1000), /^\w*Error: Cannot extend an already-expired lock\./)
    })

    it(`takes a lock over by its value: ${name}`, async () => {
      const redlock = new Class(clients)
      const lock = await redlock.acquire(['a'], 5000)
      const LockClass = name === 'quorlock' ? Lock : any(peer).Lock
      const again = new LockClass(redlock, ['a'], lock.value, [], Date.now() + 5000)
      assert.ok(again.expiration > Date.now())
      await again.extend(5000)
      await again.release()
      await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    })
  }

  it('lets the old reference of an extended lock go on working', async () => {
    const redlock = new Redlock(clients)
    const old = await redlock.acquire(['a'], 10_000)
    const extended = await old.extend(50_000)
    assert.ok(old.validity > 40_000 && extended.validity > 40_000)
    await old.release()
    assert.equal(extended.validity, 0)
    await assert.rejects(extended.release(), LockNotHeldError)
  })

  it('has errors of one family', async () => {
    const redlock = new Redlock(clients, { retryCount: 0 })
    const lock = await redlock.acquire('a', 50_000)
    const held = await redlock.acquire('a', 1000).catch((error) => error)
    for (const Class of [ResourceLockedError, ExecutionError, LockError, Error])
      assert.ok(held instanceof Class)
    assert.equal(held instanceof QuorumUnreachableError, false)
    assert.equal(held.code, 'LOCK_NOT_ACQUIRED')
    assert.deepEqual(held.resources, ['a'])
    assert.equal(held.attemptCount, 1)
    assert.ok(held.elapsed > 0 && held.elapsed < 10_000)
    assert.equal(held.votes.length, 3)
    const freesIn = held.votes.find((/** @type {any} */ vote) => vote.outcome === 'refused').freesIn
    assert.ok(freesIn > 30_000 && freesIn <= 50_000)
    assert.match(
      held.stack,
      /^ExecutionError: The operation[^]*at Redlock\.acquire[^]*drop_in\.test\.mjs/,
    )
    const late = await redlock.acquire('a', 1000, { timeout: 60 }).catch((error) => error)
    assert.ok(late instanceof ResourceLockedError)
    assert.equal(late.code, 'ACQUIRE_TIMED_OUT')
    await lock.release()
    const mocked = new ExecutionError('made by a test', [])
    assert.deepEqual(mocked.attempts, [])
    assert.equal(new ResourceLockedError('made').message, 'made')
  })

  it('emits for a node that fails though the quorum is met, also when it fails late', async () => {
    const redlock = new Redlock(cluster.urls, { nodeTimeout: 1000 })
    /** @type {any[]} */
    const events = []
    redlock.on('error', (error) => events.push(error))
    await (await redlock.acquire('warm', 1000)).release()
    assert.deepEqual(events, [])
    await cluster.servers[2]?.pause()
    const lock = await redlock.acquire('a', 30_000)
    await eventually(() => events.length > 0)
    assert.equal(events[0].name, 'NodeError')
    assert.equal(events[0].code, 'TIMED_OUT')
    assert.ok(events[0].message.includes(String(cluster.servers[2]?.port)))
    const [stats] = await Promise.all(lock.attempts)
    assert.deepEqual([...(stats?.votesAgainst.keys() ?? [])], [cluster.urls[2]])
    await cluster.servers[2]?.resume()
    await lock.release()
    await redlock.quit()
  })
})
