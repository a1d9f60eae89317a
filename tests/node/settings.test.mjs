// Tests settings, durations and resources: which values are refused, in which words, and that nothing reaches
// a node.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ConfigError, defaultSettings, LockError, Redlock } from 'quorlock'

const nodes = ['memory://settings-a', 'memory://settings-b', 'memory://settings-c']
const redlock = new Redlock(nodes)

/** @param {unknown} value */
const any = (value) => /** @type {any} */ (value)

describe('settings', () => {
  it('default to those of node-redlock 5, and otherwise to the core', () => {
    assert.deepEqual(
      { ...redlock.settings },
      {
        driftFactor: 0.01,
        retryCount: 10,
        retryDelay: 200,
        retryJitter: 100,
        automaticExtensionThreshold: 500,
        unreachableTimeout: 3000,
        fencing: true,
        fenceRetention: 120_000,
        autoExtend: false,
        maxHold: 86_400_000,
        restartGuard: 'auto',
        clockGuard: true,
        lockDelay: 0,
        minHold: 0,
        onUnreachable: 'raise',
        wait: 'push',
        fair: false,
      },
    )
    assert.equal(any(defaultSettings).ttl, 10_000)
    assert.equal(new Redlock(nodes, { retryCount: 3 }).settings.retryCount, 3)
    assert.equal(new Redlock(nodes, { retryCount: any(undefined) }).settings.retryCount, 10)
  })

  for (const [name, value] of /** @type {[string, unknown][]} */ ([
    ['driftFactor', 1],
    ['driftFactor', NaN],
    ['driftFactor', -0.1],
    ['retryCount', -2],
    ['retryCount', 1.5],
    ['retryCount', NaN],
    ['retryDelay', -1],
    ['retryDelay', Infinity],
    ['retryJitter', NaN],
    ['timeout', -1],
    ['timeout', NaN],
    ['nodeTimeout', 0],
    ['nodeTimeout', 2 ** 53],
    ['fenceRetention', 0],
    ['maxHold', -5],
    ['restartGuard', 'on'],
    ['onUnreachable', 'ignore'],
    ['wait', 'often'],
    ['maxTtl', 0],
    ['maxTtl', NaN],
    ['lockDelay', -1],
    ['lockDelay', NaN],
    ['lockDelay', 2 ** 53 - 1],
    ['minHold', Infinity],
  ])) {
    it(`refuse ${name}: ${String(value)}`, async () => {
      assert.throws(() => new Redlock(nodes, { [name]: value }), isConfig(false))
      await assert.rejects(redlock.acquire('a', 1000, { [name]: value }), isConfig(false))
    })
  }

  for (const [name, value] of /** @type {[string, unknown][]} */ ([
    ['retryCount', '3'],
    ['retryDelay', []],
    ['fencing', 1],
    ['automaticExtensionThreshold', 'x'],
    ['restartGuard', true],
    ['clockGuard', 'off'],
    ['maxTtl', '5'],
    ['signal', {}],
    ['signal', 'abort'],
  ])) {
    it(`refuse ${name} of a wrong type: ${JSON.stringify(value)}`, async () => {
      await assert.rejects(redlock.acquire('a', 1000, { [name]: value }), isConfig(true))
    })
  }

  it('take no limit for an answer', async () => {
    for (const options of [
      { retryCount: -1 },
      { retryCount: Infinity },
      { timeout: Infinity },
      { maxHold: Infinity },
    ]) {
      await (await redlock.acquire('a', 1000, options)).release()
    }
  })

  it('of a name that does not exist are ignored, as in node-redlock, with one warning each', async () => {
    /** @type {any[]} */
    const warnings = []
    const note = (/** @type {Error} */ warning) => void warnings.push(warning)
    process.on('warning', note)
    for (const settings of [
      { retryCont: 3 },
      { retryCont: 4 },
      { max_hold: 100 },
      { sginal: new AbortController().signal },
      { colour: 'red' },
      { colour: undefined },
      { ...defaultSettings },
    ])
      await (await new Redlock(nodes, any(settings)).acquire('a', 1000, any(settings))).release()
    // The process tells warnings one by one, in its next tick.
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    assert.deepEqual(
      warnings.map(({ code }) => code),
      Array(4).fill('QUORLOCK_UNKNOWN_SETTING'),
    )
    const words = warnings.map(({ message }) => message)
    assert.match(words[0], /no setting 'retryCont'.*did you mean 'retryCount'\?/)
    assert.match(words[1], /no setting 'max_hold'.*did you mean 'maxHold'\?/)
    assert.match(words[2], /no setting 'sginal'.*did you mean 'signal'\?/)
    assert.match(words[3], /no setting 'colour'.*known are driftFactor, .*minHold, .*signal$/)
  })

  for (const value of [NaN, Infinity, -Infinity, 1e21, -1e300, -1.5e-7, -0.25, 2 ** 53]) {
    it(`show ${value} as JavaScript writes it`, async () => {
      const shown = new RegExp(`\\b(not|is) ${String(value).replace('+', '\\+')}( ms)?$`, 'i')
      for (const name of ['retryDelay', 'retryJitter', 'fenceRetention'])
        assert.throws(() => new Redlock(nodes, { [name]: value }), { message: shown })
      if (value !== Infinity)
        assert.throws(() => new Redlock(nodes, { retryCount: value }), { message: shown })
      if (!Number.isFinite(value))
        assert.throws(() => new Redlock(nodes, { driftFactor: value }), { message: shown })
      assert.throws(() => new Redlock([{ host: 'a', port: value }]), { message: shown })
      assert.throws(() => new Redlock([{ host: 'a', db: value }]), { message: shown })
      await assert.rejects(redlock.acquire('a', value), { message: shown })
    })
  }

  for (const [name, value] of /** @type {[string, unknown][]} */ ([
    ['restartGuard', 'off'],
    ['clockGuard', false],
    ['maxTtl', 60_000],
  ])) {
    it(`of the guards are one for all locks of a manager: ${name}`, async () => {
      const words = /is one for all locks of a manager: set it where the manager is made/
      await assert.rejects(redlock.acquire('a', 1000, { [name]: value }), words)
      const other = new Redlock(nodes, { [name]: value })
      assert.equal(any(other.settings)[name], value)
      // Passing all of the settings on changes nothing.
      await (await other.acquire('a', 1000, other.settings)).release()
    })
  }

  it('refuse a lock that lasts longer than maxTtl', async () => {
    for (const maxTtl of [2000, 20_000]) {
      const limited = new Redlock(nodes, { maxTtl })
      const words = new RegExp(
        `at most maxTtl, ${maxTtl} ms, and this one asks for ${maxTtl + 1} ms`,
      )
      await assert.rejects(limited.acquire('m', maxTtl + 1), words)
      const lock = await limited.acquire('m', maxTtl)
      await assert.rejects(lock.extend(maxTtl + 1), words)
      await lock.release()
    }
    await (await new Redlock(nodes, { maxTtl: Infinity }).acquire('m', 2 ** 40)).release()
  })

  it('refuse scripts, which cannot be replaced', () => {
    assert.throws(() => new Redlock(nodes, {}, { acquireScript: 'return 1' }), isConfig(false))
    assert.doesNotThrow(() => new Redlock(nodes, {}, {}))
  })
})

describe('a duration', () => {
  for (const duration of [0, -1, 1.5, NaN, Infinity, 2 ** 53, 2]) {
    it(`of ${duration} is refused`, async () => {
      await assert.rejects(redlock.acquire('d', duration), isConfig(false))
      const lock = await redlock.acquire('d', 1000)
      await assert.rejects(lock.extend(duration), isConfig(false))
      await lock.release()
      await assert.rejects(
        redlock.using('d', duration, async () => assert.fail('ran')),
        isConfig(false),
      )
    })
  }

  for (const duration of ['1000', null, undefined, {}, 10n]) {
    it(`of type ${duration === null ? 'null' : typeof duration} is refused`, async () => {
      await assert.rejects(redlock.acquire('d', any(duration)), isConfig(true))
    })
  }

  it('that is no integer is refused in the words of node-redlock', async () => {
    await assert.rejects(
      redlock.acquire('d', 1.5),
      /Duration must be an integer value in milliseconds\./,
    )
    await assert.rejects(
      redlock.acquire('d', any('9')),
      /Duration must be an integer value in milliseconds\./,
    )
  })

  for (const duration of [3, 2 ** 31 - 1, 2 ** 31, 2 ** 32 + 1, 2.7e15, 2 ** 53 - 1]) {
    it(`of ${duration} is taken, extended, and does not fire at once`, async () => {
      if (duration === 3) return void (await redlock.acquire('d3', duration).catch(() => {}))
      const lock = await redlock.acquire('d', duration, { autoExtend: true })
      assert.ok(lock.validity > duration * 0.98)
      await lock.extend(duration)
      const { signal } = lock
      await new Promise((resolve) => setTimeout(resolve, 20))
      assert.equal(signal.aborted, false)
      assert.ok(lock.isValid)
      await lock.release()
    })
  }
})

describe('a resource', () => {
  for (const resources of [[], '', ['a', 'a'], ['a', ''], 'x'.repeat(4097), ['\ud800']]) {
    it(`refused: ${JSON.stringify(resources).slice(0, 20)}`, async () => {
      await assert.rejects(redlock.acquire(resources, 1000), isConfig(false))
    })
  }
  for (const resources of [undefined, null, 5, {}, [5], [null], new Set(['a'])]) {
    it(`of a wrong type: ${String(resources)}`, async () => {
      await assert.rejects(redlock.acquire(any(resources), 1000), isConfig(true))
    })
  }
  it('may be any text', async () => {
    const lock = await redlock.acquire(['ключ', 'a b\n\0', '🔒', 'x'.repeat(4096)], 1000)
    assert.equal(lock.resources[2], '🔒')
    await lock.release()
  })
})

/** @param {boolean} isType whether it is a TypeError, too */
function isConfig(isType) {
  return (/** @type {any} */ error) => {
    assert.ok(error instanceof ConfigError)
    assert.ok(error instanceof LockError)
    assert.ok(error instanceof Error)
    assert.equal(error instanceof TypeError, isType)
    assert.equal(error.code, 'CONFIG')
    assert.equal(error.name, 'ConfigError')
    assert.match(error.stack ?? '', /settings\.test\.mjs/)
    return true
  }
}
