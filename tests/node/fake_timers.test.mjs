// Tests that the fake timers of a test hold no lock up, whenever they replace the real ones.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { describe, it } from 'node:test'
import timers from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
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

  it('hold up none of many operations', async () => {
    await (await redlock.acquire('a', 60_000)).release()
    const restore = fake()
    try {
      assert.equal((await lockMany(redlock)).size, 600)
    } finally {
      restore()
    }
    await (await redlock.acquire('a', 60_000)).release()
  })

  it('may be there before the package is', async () => {
    const restore = fake()
    /** @type {Redlock} */
    let own
    try {
      own = new (loadAnew().Redlock)(cluster.urls)
      assert.equal((await lockMany(own)).size, 600)
    } finally {
      restore()
    }
    assert.equal((await lockMany(own, 'later')).size, 600)
    await own.quit()
  })

  it('may be moved on while the package is new', async () => {
    const clock = fakeClock()
    /** @type {Redlock} */
    let own
    try {
      own = new (loadAnew().Redlock)(cluster.urls)
      clock.moveOn()
      assert.equal((await lockMany(own)).size, 600)
    } finally {
      clock.restore()
    }
    assert.equal((await lockMany(own, 'later')).size, 600)
    await own.quit()
  })

  for (const early of [false, true])
    it(`hold up no statistics of a node that answers late${early ? ', though they came first' : ''}`, async () => {
      const urls = cluster.urls.slice(0, 2)
      const proxy = await /** @type {any} */ (cluster.servers[2]).proxy()
      const restore = fake()
      const loaded = early ? loadAnew().Redlock : Redlock
      restore()
      const own = new loaded([...urls, proxy.url], { nodeTimeout: 2000 })
      const lock = await own.acquire('a', 60_000)
      await proxy.delay(15)
      const { attempts } = await lock.release()
      const restoreAgain = fake()
      const [stats] = await Promise.all(attempts).finally(restoreAgain)
      assert.equal(stats?.votesFor.size, 3)
      await own.quit()
      await proxy.close()
    })

  it('that came before the package let no process end that waits for a lock', async () => {
    const held = await redlock.acquire('a', 60_000)
    const code = `
      const never = () => ({ ref() {}, unref() {} })
      const [real, names] = [{ ...globalThis }, ['setImmediate', 'setTimeout', 'setInterval']]
      const timers = require('node:timers')
      for (const name of names) globalThis[name] = timers[name] = never
      const { Redlock } = require('quorlock')
      for (const name of names) globalThis[name] = timers[name] = real[name]
      const redlock = new Redlock(${JSON.stringify(cluster.urls)})
      redlock.acquire('a', 1000, { timeout: 20_000 }).then(() => console.log('acquired'))`
    const child = spawn(process.execPath, ['-e', code], { cwd: import.meta.dirname })
    let output = ''
    child.stdout.on('data', (data) => (output += String(data)))
    await Promise.race([once(child, 'close'), sleep(500)])
    await held.release()
    if (child.exitCode === null) await once(child, 'close')
    assert.equal(output, 'acquired\n')
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

/** Replaces the same by what calls when time is moved on; returns what moves it on, and what undoes that. */
function fakeClock() {
  const { nextTick } = process
  const real = { ...timers }
  /** @type {(() => void)[]} */
  const asked = []
  const later = /** @type {any} */ (
    (/** @type {() => void} */ call) => {
      asked.push(call)
      return { ref() {}, unref() {} }
    }
  )
  process.nextTick = later
  globalThis.setImmediate = timers.setImmediate = later
  return {
    moveOn: () => asked.splice(0).forEach((call) => call()),
    restore: () => {
      process.nextTick = nextTick
      globalThis.setImmediate = timers.setImmediate = real.setImmediate
    },
  }
}

/**
 * Acquires and releases many locks at once; the values that they had.
 * @param {Redlock} redlock
 */
async function lockMany(redlock, name = 'many') {
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
