// Tests that the loss of a lock is reported in time, whatever the nodes and the event loop do, and that
// nothing else is reported as a loss.
import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, it } from 'node:test'
import { LeaseLostError, Redlock } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { eventually, promptly } from './support/wait.mjs'

describe('loss', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('is told within 50 ms of the end of validity while every node hangs', async () => {
    const lose = async () => {
      const lock = await redlock.acquire('a', 1000, { autoExtend: true })
      await eventually(() => lock.votes.every((vote) => vote.outcome === 'granted'))
      await Promise.all(cluster.servers.map((server) => server.pause()))
      // What is proved by now, by a renewal that may have come in between.
      let end = performance.now() + lock.validity
      while (!lock.signal.aborted) {
        end = Math.max(end, performance.now() + lock.validity)
        await sleep(2)
        assert.ok(performance.now() - end < 5000, 'never told')
      }
      const late = performance.now() - end
      assert.ok(lock.signal.reason instanceof LeaseLostError)
      assert.equal(lock.validity, 0)
      await assert.rejects(lock.release(), LeaseLostError)
      await cluster.reset()
      return late
    }
    await promptly(50, lose)
  })

  it('does not come from an event loop that is blocked for longer than the duration', async () => {
    await redlock.using('a', 3000, async (signal, { lock }) => {
      const end = performance.now() + 5000
      while (performance.now() < end);
      assert.ok(lock.isValid)
      assert.deepEqual(await cluster.values('a'), Array(3).fill(lock.value))
      await sleep(0) // one turn of the event loop, in which a loss would be told
      assert.equal(signal.aborted, false)
    })
  })

  it('is told of a lock that is not extended', async () => {
    await promptly(50, async () => {
      const lock = await redlock.acquire('a', 300)
      const start = performance.now()
      const { validity } = lock
      let took = 0
      lock.signal.addEventListener('abort', () => (took = performance.now() - start))
      await eventually(() => took > 0)
      assert.ok(took > validity - 5, `${took} against ${validity}`)
      assert.equal(/** @type {any} */ (lock.signal.error).code, 'LEASE_LOST')
      assert.equal(lock.expiration, 0)
      return took - validity
    })
  })

  it('is told in the context of who watches the lock, also while others use theirs', async () => {
    const context = new AsyncLocalStorage()
    /** @type {unknown[]} */
    const seen = []
    await context.run('holder', async () => {
      for (let number = 0; number < 20; number += 1) {
        const { signal } = await redlock.acquire(`a${number}`, 200 + 5 * number)
        signal.addEventListener('abort', () => seen.push(context.getStore()))
      }
    })
    await context.run('other', async () => {
      while (seen.length < 20) {
        const end = performance.now() + 2
        while (performance.now() < end);
        await (await redlock.acquire('b', 60_000)).release()
      }
    })
    assert.deepEqual(new Set(seen), new Set(['holder']))
  })

  it('is told at once by a signal asked for afterwards', async () => {
    const lock = await redlock.acquire('a', 100)
    await eventually(() => lock.validity === 0)
    await eventually(() => lock.signal.aborted)
  })

  it('is no business of a lock that was released', async () => {
    const lock = await redlock.acquire('a', 1500, { autoExtend: true })
    const { signal } = lock
    await lock.release()
    await sleep(2000) // time in which it could abort wrongly
    assert.equal(signal.aborted, false)
  })

  it('refuses to extend what has expired, and does not make the keys again', async () => {
    const lock = await redlock.acquire('a', 100)
    await eventually(() => !lock.isValid)
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await assert.rejects(lock.extend(5000), (error) => {
      assert.ok(error instanceof LeaseLostError)
      assert.match(error.message, /^Cannot extend an already-expired lock\./)
      assert.match(error.stack ?? '', /loss\.test\.mjs/)
      return true
    })
    assert.deepEqual(await cluster.values('a'), [null, null, null])
  })

  for (const retryCount of [10, -1]) {
    it(`is told at once by the release of an expired lock, with retryCount ${retryCount}`, async () => {
      const own = new Redlock(cluster.urls, { retryCount, retryDelay: 1000 })
      const lock = await own.acquire('a', 100)
      await eventually(() => !lock.isValid)
      const next = await redlock.acquire('a', 20_000)
      const start = performance.now()
      await assert.rejects(lock.release(), LeaseLostError)
      assert.ok(performance.now() - start < 5000, 'ten seconds of further tries')
      assert.deepEqual(await cluster.values('a'), Array(3).fill(next.value))
      assert.equal((await next.release()).outcome, 'released')
      await own.quit()
    })
  }

  it('does not depend on the wall clock', async () => {
    const real = Date.now
    try {
      await redlock.using('a', 2000, async (signal, { lock }) => {
        for (const step of [3_600_000, -3_600_000]) {
          Date.now = () => real() + step
          assert.ok(lock.isValid)
          assert.ok(Math.abs(lock.expiration - Date.now() - lock.validity) < 1000)
          await sleep(1200) // more than one renewal
          assert.equal(signal.aborted, false)
        }
      })
    } finally {
      Date.now = real
    }
  })

  it('counts the validity from the try that was won, not from the first', async () => {
    const first = await redlock.acquire('a', 20_000)
    setTimeout(() => void first.release(), 4000)
    const second = await redlock.acquire('a', 4000, { timeout: 20_000 })
    assert.ok(second.validity > 1000 && second.expiration - Date.now() > 1000, `${second.validity}`)
    await second.release()
  })

  it('makes no lock of a round that took longer than its validity', async () => {
    const proxies = await Promise.all(cluster.servers.map((server) => server.proxy()))
    const slow = new Redlock(
      proxies.map((proxy) => proxy.url),
      { nodeTimeout: 2000 },
    )
    await (await slow.acquire('warm', 1000)).release()
    await Promise.all(proxies.map((proxy) => proxy.delay(200)))
    await assert.rejects(slow.acquire('a', 200, { retryCount: 0 }))
    await Promise.all(proxies.map((proxy) => proxy.heal()))
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await slow.quit()
    await Promise.all(proxies.map((proxy) => proxy.close()))
  })
})
