// Tests that the fake timers of a test hold no lock up, whenever they replace the real ones.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, it } from 'node:test'
import timers from 'node:timers'
import { Redlock } from 'quorlock'
import { withLocks } from './support/locks.mjs'

const require = createRequire(import.meta.url)

describe('fake timers', { timeout: 60_000 }, () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('lose no operation that was begun under them', async () => {
    const restore = fake()
    const begun = redlock.acquire('a', 60_000)
    restore()
    await (await begun).release()
    await (await redlock.acquire('b', 60_000)).release()
  })

  it('hold up no crowd', async () => {
    await (await redlock.acquire('a', 60_000)).release()
    const restore = fake()
    try {
      assert.equal((await crowd(redlock)).size, 600)
    } finally {
      restore()
    }
    await (await redlock.acquire('a', 60_000)).release()
  })

  it('may be there before the package is', async () => {
    // A timer that is not real keeps no process alive.
    const alive = setInterval(() => {}, 10_000)
    const restore = fake()
    /** @type {Redlock} */
    let own
    try {
      own = new (loadAnew().Redlock)(cluster.urls)
      assert.equal((await crowd(own)).size, 600)
    } finally {
      restore()
    }
    assert.equal((await crowd(own, 'later')).size, 600)
    await own.quit()
    clearInterval(alive)
  })

  it('hold up no statistics of a node that answers late', async () => {
    const urls = cluster.urls.slice(0, 2)
    const proxy = await /** @type {any} */ (cluster.servers[2]).proxy()
    const own = new Redlock([...urls, proxy.url], { nodeTimeout: 2000 })
    const lock = await own.acquire('a', 60_000)
    await proxy.delay(15)
    const { attempts } = await lock.release()
    const restore = fake()
    const [stats] = await Promise.all(attempts).finally(restore)
    assert.equal(stats?.votesFor.size, 3)
    await own.quit()
    await proxy.close()
  })
})

/** Replaces what tests replace by what never calls; returns what undoes that. */
function fake() {
  const { nextTick } = process
  const names = /** @type {const} */ (['setImmediate', 'setTimeout', 'setInterval'])
  const real = names.map((name) => timers[name])
  const never = /** @type {any} */ (() => ({ ref() {}, unref() {} }))
  process.nextTick = never
  for (const name of names) globalThis[name] = timers[name] = never
  return () => {
    process.nextTick = nextTick
    for (const [index, name] of names.entries())
      globalThis[name] = timers[name] = /** @type {any} */ (real[index])
  }
}

/**
 * Acquires and releases many locks at once; the values that they had.
 * @param {Redlock} redlock
 */
async function crowd(redlock, name = 'crowd') {
  const locks = Array.from({ length: 600 }, (_, index) => redlock.acquire(name + index, 60_000))
  const values = (await Promise.all(locks)).map(async (lock) => {
    await lock.release()
    return lock.value
  })
  return new Set(await Promise.all(values))
}

/**
 * The package, as in a process that loads it for the first time.
 * @returns {typeof import('quorlock')}
 */
function loadAnew() {
  for (const name of Object.keys(require.cache))
    if (name.includes('bindings-node') && !name.endsWith('.node')) delete require.cache[name]
  return require('quorlock')
}
