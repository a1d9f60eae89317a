// Tests hostile servers and absurd arguments: each gives an error of this package in time, and never a panic.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { after, before, describe, it } from 'node:test'
import { ConfigError, LeaseLostError, LockError, QuorumUnreachableError, Redlock } from 'quorlock'
import { python, root } from './support/harness.mjs'

// A second for connecting and the caller's timeout, on a busy machine.
const LIMIT = 20_000

describe('a hostile server', () => {
  /** @type {import('node:child_process').ChildProcess} */
  let child
  /** @type {Record<string, string[]>} */
  let hostileServers
  before(async () => {
    child = spawn(python(), ['-m', 'tests.support.hostile_server'], {
      cwd: root,
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    for await (const line of createInterface({ input: /** @type {any} */ (child.stdout) })) {
      hostileServers = JSON.parse(line)
      break
    }
  })
  after(() => child.stdin?.end())

  it('is told in time and fills no memory', async () => {
    const before = process.memoryUsage().rss
    assert.ok(Object.keys(hostileServers).length > 20)
    const attacks = Object.entries(hostileServers).map(async ([name, urls]) => {
      const redlock = new Redlock(urls, { timeout: 300 })
      const start = performance.now()
      for (const call of [() => redlock.acquire('r', 1000), () => redlock.isLocked('r')]) {
        await assert.rejects(call, (error) => {
          assert.ok(error instanceof QuorumUnreachableError, `${name}: ${error}`)
          assert.equal(error.votes.length, 3)
          return true
        })
      }
      const took = performance.now() - start
      assert.ok(took < LIMIT, `${name}: ${took} ms`)
      await redlock.quit()
    })
    await Promise.all(attacks)
    const grown = process.memoryUsage().rss - before
    assert.ok(grown < 128 * 2 ** 20, `${grown} bytes more`)
  })

  it('does not matter beside two that are honest', async () => {
    for (const [name, urls] of Object.entries(hostileServers)) {
      const honest = ['a', 'b'].map((node) => `memory://${encodeURIComponent(name)}-${node}`)
      const redlock = new Redlock([...honest, /** @type {string} */ (urls[0])])
      const lock = await redlock.acquire('r', 5000)
      await lock.extend(5000)
      await lock.release()
      await redlock.quit()
    }
  })
})

describe('an absurd argument', () => {
  const seed = Number(process.env.SEED ?? Date.now() % 2 ** 32)
  const runs = Number(process.env.RUNS ?? 3000)
  const draw = numbers(seed)
  /**
   * @template T
   * @param {readonly T[]} list
   * @returns {T}
   */
  const pick = (list) => /** @type {T} */ (list[Math.floor(draw() * list.length)])

  const NUMBERS = [
    0, -0, 1, -1, 0.5, 10, 99, 1e3, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 63, 2 ** 64, 1e308, 5e-324, NaN,
    Infinity, -Infinity, Number.MAX_SAFE_INTEGER,
  ] // prettier-ignore
  const THINGS = [
    undefined, null, true, false, '', 'r', '1000', 10n, Symbol('s'), [], ['r'], [1], {}, () => {},
    new Date(0), new Map(), '\0', '\ud800', '💣', 'x'.repeat(5000), Object.create(null),
    new Proxy({}, {}), new Uint8Array(3),
  ] // prettier-ignore
  const PIECES = [
    'redis', 'rediss', 'unix', 'memory', '://', ':', '/', '@', '?', '&', '=', '#', ',', ' ', '[', ']',
    '::1', '%', '%40', '%ff', '\0', 'localhost', '6379', '-1', 'db=', 'ssl_cert_reqs=none', 'ü',
  ] // prettier-ignore
  const thing = () => (draw() < 0.5 ? pick(NUMBERS) : pick(THINGS))
  const address = () => Array.from({ length: Math.floor(draw() * 10) }, () => pick(PIECES)).join('')

  const NAMES = [
    'driftFactor', 'retryCount', 'retryDelay', 'retryJitter', 'automaticExtensionThreshold',
    'timeout', 'nodeTimeout', 'unreachableTimeout', 'fencing', 'fenceRetention', 'autoExtend',
    'maxHold', 'signal', 'other',
  ] // prettier-ignore
  const options = () => {
    /** @type {Record<string, unknown>} */
    const made = {}
    for (let left = Math.floor(draw() * 4); left > 0; left -= 1) made[pick(NAMES)] = thing()
    return made
  }

  /**
   * @param {() => unknown} call
   * @param {unknown} given
   */
  const isTakenOrTold = async (call, given) => {
    try {
      return await call()
    } catch (error) {
      const told = `${describeThing(given)} (SEED=${seed}): ${error}`
      assert.ok(error instanceof LockError, told)
      assert.ok(error instanceof ConfigError && error.message.length > 0, told)
      return undefined
    }
  }

  it('is taken or told as a setting', async () => {
    for (let run = 0; run < runs; run += 1) {
      const settings = /** @type {any} */ (options())
      await isTakenOrTold(() => new Redlock(['memory://settings'], settings), settings)
    }
  })

  it('is taken or told as a node', async () => {
    for (let run = 0; run < runs; run += 1) {
      const parts = {
        host: thing(),
        port: thing(),
        [pick(['path', 'db', 'password', 'tls'])]: thing(),
      }
      const nodes = /** @type {any} */ (pick([[address()], [thing()], [parts], thing()]))
      const redlock = await isTakenOrTold(() => new Redlock(nodes), nodes)
      if (redlock !== undefined) await /** @type {Redlock} */ (redlock).quit()
    }
  })

  it('is taken or told as a name, a duration or an option', async () => {
    const redlock = new Redlock(['memory://arguments'], { retryCount: 0 })
    for (let run = 0; run < runs; run += 1) {
      const words = /** @type {[any, any, any]} */ (
        pick([
          [thing(), 1000, {}],
          ['r', thing(), {}],
          ['r', 1000, pick([options(), thing()])],
        ])
      )
      const lock = await isTakenOrTold(() => redlock.acquire(...words), words)
      if (lock === undefined) continue
      // A lock of a millisecond may be over.
      await /** @type {import('quorlock').Lock} */ (lock).release().catch((error) => {
        assert.ok(error instanceof LeaseLostError, String(error))
      })
    }
    await redlock.quit()
  })
})

/**
 * Numbers from 0 to 1 that follow from a seed.
 * @param {number} seed
 */
function numbers(seed) {
  let state = BigInt(seed) + 1n
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn
    return Number(state >> 11n) / 2 ** 53
  }
}

/** @param {unknown} thing */
function describeThing(thing) {
  try {
    return JSON.stringify(thing, (_, value) => (typeof value === 'bigint' ? `${value}n` : value))
  } catch {
    return String(typeof thing)
  }
}
