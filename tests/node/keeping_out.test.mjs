// Tests that locks stay closed after the end of their lease: lockDelay and minHold.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { LeaseLostError, Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { eventually } from './support/wait.mjs'

const LONG = 30_000

describe('a lock that stays closed', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  /**
   * @param {string} value
   * @param {number} least
   * @param {number} most
   */
  async function isKept(value, least, most) {
    const left = await Promise.all(cluster.servers.map((server) => server.command('PTTL', 'a')))
    const values = await cluster.values('a')
    return (
      values.every((held) => held === value) &&
      left.every((millis) => Number(millis) >= least && Number(millis) <= most)
    )
  }

  const isFree = async () => (await cluster.values('a')).every((held) => held === null)

  const isRefused = async () =>
    await redlock.acquire('a', 1000, { retryCount: 0 }).then(
      () => false,
      (error) => error instanceof ResourceLockedError,
    )

  it('is kept for lockDelay beyond what is trusted, and freed by a release', async () => {
    const lock = await redlock.acquire('a', 10_000, { lockDelay: LONG })
    await eventually(async () => (await cluster.values('a')).every((held) => held === lock.value))
    assert.ok(await isKept(lock.value, LONG, LONG + 10_000))
    assert.ok(lock.validity < 10_000)
    await lock.release()
    await eventually(isFree)
  })

  it('outlasts its loss, until its holder releases it', async () => {
    for (const options of [{}, { autoExtend: true, maxHold: 200 }]) {
      const lock = await redlock.acquire('a', 400, { ...options, lockDelay: LONG })
      await eventually(() => lock.signal.aborted)
      assert.ok(await isKept(lock.value, LONG - 10_000, LONG + 400))
      assert.ok(await isRefused())
      await assert.rejects(lock.release(), LeaseLostError)
      await eventually(isFree)
    }
  })

  it('is one whose using() has ended after minHold alone', async () => {
    const work = (
      /** @type {AbortSignal} */ _,
      /** @type {import('quorlock').UsingContext} */ { lock },
    ) => lock.value
    const value = await redlock.using('a', 1000, { minHold: LONG }, work)
    await eventually(() => isKept(value, LONG - 10_000, LONG + 1000))
    assert.ok(await isRefused())
  })

  it('opens when minHold is over, which a setting of the manager may say', async () => {
    const locks = new Redlock(cluster.urls, { minHold: 1500 })
    const start = performance.now()
    const lock = await locks.acquire('a', 10_000)
    assert.equal((await lock.release()).outcome, 'released')
    assert.equal(lock.validity, 0)
    assert.ok((await isRefused()) || performance.now() - start >= 1500)
    await eventually(isFree)
    assert.ok(performance.now() - start >= 1500)
    await locks.quit()
  })

  it('is one whose routine threw, too', async () => {
    let value = ''
    const failing = redlock.using('a', 1000, { minHold: LONG }, (_, { lock }) => {
      value = lock.value
      throw new RangeError("the routine's own")
    })
    await assert.rejects(failing, RangeError)
    await eventually(() => isKept(value, LONG - 10_000, LONG + 1000))
  })

  it('is none that was given up before it was handed out', async () => {
    const controller = new AbortController()
    const options = { signal: controller.signal, minHold: LONG, lockDelay: LONG, nodeTimeout: 5000 }
    await cluster.servers[0].pause()
    await cluster.servers[1].pause()
    const acquiring = redlock.acquire('a', 10_000, options)
    const lastHas = async () => (await cluster.servers[2].command('EXISTS', 'a')) === 1
    await eventually(lastHas)
    controller.abort(new RangeError('given up'))
    await assert.rejects(acquiring, RangeError)
    await cluster.servers[0].resume()
    await cluster.servers[1].resume()
    await eventually(isFree)
  })

  it('is deleted by a release after minHold', async () => {
    const lock = await redlock.acquire('a', 60_000, { minHold: 1 })
    const start = performance.now()
    await eventually(() => performance.now() - start > 2)
    await lock.release()
    await eventually(isFree)
  })
})
