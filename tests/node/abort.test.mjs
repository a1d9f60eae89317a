// Tests that an AbortSignal cancels the wait for a lock: at once, with its reason, and without leaving a key.
import assert from 'node:assert/strict'
import { getEventListeners, once } from 'node:events'
import { describe, it } from 'node:test'
import { Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { eventually, promptly } from './support/wait.mjs'

describe('abort', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('before the call rejects with the reason and asks no node', async () => {
    const reason = new Error('not today')
    await assert.rejects(redlock.acquire('a', 1000, { signal: AbortSignal.abort(reason) }), reason)
    await assert.rejects(
      redlock.acquire('a', 1000, { signal: AbortSignal.abort('text') }),
      (error) => error === 'text',
    )
    await assert.rejects(
      redlock.using('a', 1000, { signal: AbortSignal.abort(reason) }, () => assert.fail('ran')),
      reason,
    )
    assert.deepEqual(await cluster.values('a'), [null, null, null])
  })

  it('while waiting rejects with the reason at once and leaves no key and no listener', async () => {
    const held = await redlock.acquire('a', 60_000)
    await promptly(20, async () => {
      const controller = new AbortController()
      const waits = once(redlock, 'waiting')
      const waiting = redlock.acquire(['b', 'a'], 10_000, {
        signal: controller.signal,
        retryCount: -1,
      })
      await waits
      const reason = new Error('enough')
      const start = performance.now()
      controller.abort(reason)
      await assert.rejects(waiting, reason)
      const took = performance.now() - start
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
      return took
    })
    await held.release()
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await eventually(async () => (await cluster.values('b')).every((value) => value === null))
  })

  it('at any moment leaves no key that nobody owns', async () => {
    for (let pause = 0; pause < 40; pause += 1) {
      const controller = new AbortController()
      const acquiring = redlock.acquire(`a${pause}`, 30_000, { signal: controller.signal })
      const end = performance.now() + pause / 20
      while (performance.now() < end) await new Promise((resolve) => setImmediate(resolve))
      controller.abort()
      await acquiring.then(
        (lock) => lock.release(),
        (error) => assert.equal(error.name, 'AbortError'),
      )
    }
    const left = async () =>
      (await Promise.all(cluster.servers.map((server) => server.keys('a*')))).flatMap(Object.keys)
    await eventually(async () => (await left()).length === 0)
  })

  it('leaves no listener where the lock was won', async () => {
    const { signal } = new AbortController()
    const lock = await redlock.acquire('a', 1000, { signal })
    await lock.release()
    await redlock.using('a', 1000, { signal }, async () => {})
    await assert.rejects(redlock.acquire('a', 1.5, { signal }))
    assert.equal(getEventListeners(signal, 'abort').length, 0)
  })

  it('between the last vote and its news is heeded, too', async () => {
    const own = new Redlock(cluster.urls, { retryCount: 0 })
    const held = await own.acquire('a', 60_000)
    const reason = new Error('enough')
    const controller = new AbortController()
    own.on('error', () => controller.abort(reason))
    // It ends by itself: the other operation is won after the refusal.
    await redlock.acquire('b', 300)
    // (Of two resources: it shares no call with the other, in which a refusal would come last.)
    const refused = assert.rejects(own.acquire(['a', 'c'], 1000), ResourceLockedError)
    const won = own.acquire('b', 60_000, { timeout: 30_000, signal: controller.signal })
    const aborted = assert.rejects(won, reason)
    // Both are started; then both results wait for the event loop.
    await new Promise(process.nextTick)
    for (const blocked = performance.now(); performance.now() < blocked + 1000;);
    await Promise.all([refused, aborted])
    await eventually(async () => (await cluster.values('b')).every((value) => value === null))
    await held.release()
    await own.quit()
  })

  it('rejects at once also where results wait for the event loop, and gives back what was won', async () => {
    const proxies = await Promise.all(cluster.servers.map((server) => server.proxy()))
    const own = new Redlock(proxies.map(({ url }) => url))
    const held = await own.acquire('a', 60_000)
    // The answers come while this thread is busy.
    for (const proxy of proxies) await proxy.delay(30)
    for (const count of [1, 5, 40]) {
      const reason = new Error('enough')
      const controller = new AbortController()
      const { signal } = controller
      const begin = (/** @type {number} */ number) => [
        own.acquire(['a', `b${number}`], 60_000, { retryCount: 0, signal }),
        own.acquire(`c${number}`, 60_000, { signal }),
      ]
      const all = Promise.allSettled(
        Array.from({ length: count }, (_, number) => begin(number)).flat(),
      )
      await new Promise((resolve) => setImmediate(resolve))
      for (const blocked = performance.now(); performance.now() < blocked + 500;);
      controller.abort(reason)
      let turns = 0
      const turn = () => void (turns += 1)
      setImmediate(turn)
      for (const result of await all)
        assert.equal(result.status === 'rejected' && result.reason, reason)
      assert.equal(turns, 0, 'at once')
      assert.equal(getEventListeners(signal, 'abort').length, 0)
    }
    const left = async () =>
      (await Promise.all(cluster.servers.map((server) => server.keys('c*')))).flatMap(Object.keys)
    await eventually(async () => (await left()).length === 0)
    await held.release()
    await own.quit()
    for (const proxy of proxies) await proxy.close()
  })

  it('may end many waits at once, without a warning of a leak', async () => {
    /** @type {Error[]} */
    const warnings = []
    const note = (/** @type {Error} */ warning) => void warnings.push(warning)
    process.on('warning', note)
    const held = await redlock.acquire('a', 60_000)
    const controller = new AbortController()
    const { signal } = controller
    const waits = Array.from({ length: 30 }, () => redlock.acquire('a', 1000, { signal }))
    assert.equal(getEventListeners(signal, 'abort').length, 1)
    controller.abort()
    for (const result of await Promise.allSettled(waits)) assert.equal(result.status, 'rejected')
    assert.equal(getEventListeners(signal, 'abort').length, 0)
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    assert.deepEqual(warnings, [])
    await held.release()
  })

  it('of the caller reaches the routine', async () => {
    const controller = new AbortController()
    const reason = new Error('enough')
    const work = redlock.using('a', 1000, { signal: controller.signal }, async (signal) => {
      controller.abort(reason)
      assert.equal(signal.aborted, true)
      assert.equal(signal.reason, reason)
      throw signal.error
    })
    await assert.rejects(work, reason)
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
  })

  it('works with a signal that knows no reason', async () => {
    const held = await redlock.acquire('a', 60_000)
    const signal = Object.assign(new EventTarget(), { aborted: false })
    const any = /** @type {any} */ (signal)
    const waiting = redlock.acquire('a', 1000, { signal: any })
    signal.aborted = true
    signal.dispatchEvent(new Event('abort'))
    await assert.rejects(waiting, { name: 'AbortError' })
    await assert.rejects(redlock.acquire('a', 1000, { signal: any }), { name: 'AbortError' })
    await held.release()
  })

  it(
    'with a signal that throws on its removal takes no result from anyone',
    { timeout: 20_000 },
    async () => {
      /** @type {unknown[]} */
      const uncaught = []
      const listeners = process.listeners('uncaughtException')
      process.removeAllListeners('uncaughtException')
      process.on('uncaughtException', (error) => void uncaught.push(error))
      const thrown = new Error('cannot remove')
      const removeEventListener = () => {
        throw thrown
      }
      const signal = /** @type {any} */ (
        Object.assign(new EventTarget(), { aborted: false, removeEventListener })
      )
      const all = Array.from({ length: 40 }, (_, number) =>
        redlock.acquire(`a${number}`, 60_000, number === 0 ? { signal } : {}),
      )
      for (const lock of await Promise.all(all)) await lock.release()
      process.removeAllListeners('uncaughtException')
      for (const listener of listeners) process.on('uncaughtException', listener)
      assert.deepEqual(uncaught, [thrown])
    },
  )

  it('with a signal that takes no listener begins nothing', async () => {
    const thrown = new Error('cannot add')
    const addEventListener = () => {
      throw thrown
    }
    const signal = /** @type {any} */ ({ aborted: false, addEventListener })
    for (let time = 0; time < 2; time += 1)
      await assert.rejects(redlock.acquire('a', 60_000, { signal }), thrown)
    await (await redlock.acquire('a', 60_000, { retryCount: 0 })).release()
  })

  it('by a timeout of the platform', async () => {
    const held = await redlock.acquire('a', 60_000)
    await assert.rejects(
      redlock.acquire('a', 1000, { signal: AbortSignal.timeout(30), retryCount: -1 }),
      { name: 'TimeoutError' },
    )
    await held.release()
  })
})
