// Tests using(): the lock extends itself while the routine runs, and the end is reported exactly.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, it } from 'node:test'
import { ExecutionError, LeaseLostError, Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { eventually } from './support/wait.mjs'

describe('using', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('holds the lock for longer than its duration and gives the value on', async () => {
    const value = await redlock.using(['a'], 2000, async (signal, { lock }) => {
      await sleep(3000) // longer than its duration
      assert.equal(signal.aborted, false)
      assert.equal(signal.error, undefined)
      assert.ok(lock.isValid)
      assert.deepEqual(await cluster.values('a'), Array(3).fill(lock.value))
      return 'value'
    })
    assert.equal(value, 'value')
    await eventually(async () => (await cluster.values('a')).every((held) => held === null))
  })

  it('takes settings in between, and a routine that is not async', async () => {
    assert.equal(await redlock.using('a', 1000, { retryCount: 0 }, () => Promise.resolve(7)), 7)
    assert.equal(await redlock.using('a', 1000, () => 8), 8)
    const any = /** @type {any} */ (redlock)
    await assert.rejects(any.using('a', 1000), TypeError)
    await assert.rejects(any.using('a', 1000, {}), /needs a function to run, as its last argument/)
    await assert.rejects(any.using('a', 1000, {}, 5), { code: 'CONFIG' })
  })

  it('does not run the routine on a lock that is held', async () => {
    const held = await redlock.acquire('a', 60_000)
    const options = { retryCount: 0 }
    await assert.rejects(
      redlock.using('a', 1000, options, () => assert.fail('ran')),
      ResourceLockedError,
    )
    await held.release()
  })

  it('aborts and rejects when the lock is taken away, though the routine has not noticed', async () => {
    /** @type {any} */
    let reason
    const work = redlock.using('a', 1500, async (signal) => {
      await Promise.all(
        cluster.servers.map((server) => server.command('SET', 'a', 'thief', 'PX', 60_000)),
      )
      await eventually(() => signal.aborted)
      reason = signal.reason
      assert.equal(signal.error, reason)
      return 'unaware'
    })
    await assert.rejects(work, (error) => {
      assert.equal(error, reason)
      assert.ok(error instanceof LeaseLostError)
      assert.ok(error instanceof ExecutionError)
      assert.equal(error.code, 'LEASE_LOST')
      return true
    })
    assert.deepEqual(await cluster.values('a'), ['thief', 'thief', 'thief'])
  })

  it('rejects when the lock is found gone only at the release', async () => {
    const work = redlock.using('a', 60_000, async () => {
      await Promise.all(cluster.servers.map((server) => server.command('DEL', 'a')))
    })
    await assert.rejects(work, { name: 'LeaseLostError' })
  })

  it("never masks the routine's own error", async () => {
    const own = new RangeError('own')
    const thrown = await redlock.using('a', 1000, () => Promise.reject(own)).catch((error) => error)
    assert.equal(thrown, own)
    assert.equal('cause' in own, false)
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))

    const lost = await redlock
      .using('a', 60_000, async () => {
        await Promise.all(cluster.servers.map((server) => server.command('DEL', 'a')))
        throw own
      })
      .catch((error) => error)
    assert.equal(lost, own)
    assert.ok(own.cause instanceof LeaseLostError)
    for (const odd of ['text', undefined, Object.freeze(new Error('frozen'))]) {
      const caught = await redlock
        .using('b', 60_000, async () => {
          await Promise.all(cluster.servers.map((server) => server.command('DEL', 'b')))
          throw odd
        })
        .then(
          () => assert.fail('resolved'),
          (error) => error,
        )
      assert.equal(caught, odd)
    }
  })

  it('rejects with the abort error that the routine throws', async () => {
    const work = redlock.using('a', 1500, async (signal) => {
      await Promise.all(
        cluster.servers.map((server) => server.command('SET', 'a', 'thief', 'PX', 60_000)),
      )
      await eventually(() => signal.aborted)
      throw signal.error
    })
    await assert.rejects(work, LeaseLostError)
  })

  it('lets the routine release the lock itself', async () => {
    await redlock.using('a', 1000, async (_signal, { lock }) => void (await lock.release()))
  })

  it('stops at maxHold', async () => {
    const start = performance.now()
    const work = redlock.using('a', 2000, { maxHold: 2500 }, async (signal) => {
      await eventually(() => signal.aborted)
    })
    await assert.rejects(work, { name: 'LeaseLostError', message: /max_hold|maxHold/ })
    const took = performance.now() - start
    assert.ok(took >= 2400 && took < 12_000, `${took}`)
  })

  it('goes on after a renewal that failed', async () => {
    await redlock.using('a', 6000, async (signal, { lock }) => {
      await Promise.all([0, 1].map((index) => cluster.servers[index]?.pause()))
      // A renewal fails on the two, which is a lost quorum for as long as they are silent.
      await eventually(() => lock.validity < 3500)
      await Promise.all([0, 1].map((index) => cluster.servers[index]?.resume()))
      await eventually(() => lock.validity > 4500)
      await sleep(7000) // longer than its duration
      assert.equal(signal.aborted, false)
      assert.ok(lock.isValid)
    })
  })

  it('renews now and then, not all the time', async () => {
    await redlock.acquire('warm', 1000).then((lock) => lock.release())
    const calls = async () => {
      const info = String(await cluster.servers[0]?.command('INFO', 'commandstats'))
      return [...info.matchAll(/cmdstat_(?:evalsha|eval|set|pexpire|get):calls=(\d+)/g)].reduce(
        (sum, match) => sum + Number(match[1]),
        0,
      )
    }
    await redlock.using('a', 3000, async () => {
      const before = await calls()
      await sleep(2500) // the renewals within a fixed time are what is counted
      // Every second: two or three renewals, each one script with a few commands inside.
      assert.ok((await calls()) - before < 40)
    })
  })
})
