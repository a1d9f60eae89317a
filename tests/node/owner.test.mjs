// Tests that others see who holds a lock, where its Redlock has an owner.
import assert from 'node:assert/strict'
import { hostname } from 'node:os'
import { describe, it } from 'node:test'
import { inspect } from 'node:util'
import { ConfigError, Holder, Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { eventually } from './support/wait.mjs'

const MEMORY = ['memory://', 'memory://', 'memory://']

describe('a holder', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let plain
  withLocks((servers, locks) => ([cluster, plain] = [servers, locks]))

  it('is named to others, and in the error of a lock that they are refused', async () => {
    const [redlock, others] = [
      new Redlock(cluster.urls, { owner: { service: 'billing', shard: 7 } }),
      new Redlock(cluster.urls, { owner: { service: 'reports' }, retryCount: 0 }),
    ]
    assert.equal(await others.holder('r'), undefined)
    const before = Date.now()
    const lock = await redlock.acquire(['r', 's'], 30_000)
    // What is written about the holder is not waited for.
    await eventually(async () => (await others.holder('r'))?.since !== undefined)
    await eventually(async () => (await others.holder('s'))?.since !== undefined)
    for (const holder of [
      await others.holder('r'),
      await others.holder('s'),
      await plain.holder('r'),
      await lock.holder(),
    ]) {
      assert.ok(holder instanceof Holder)
      const { host, ...words } = holder.owner
      assert.deepEqual(words, { service: 'billing', shard: '7', pid: String(process.pid) })
      assert.equal(host, hostname())
      assert.match(`${holder}`, new RegExp(`^billing on .+, pid ${process.pid}, for \\d+ s$`))
      assert.equal(inspect(holder), `<Holder ${holder.text}>`)
      assert.ok(Number(holder.since) >= before - 1 && Number(holder.since) <= Date.now())
    }
    await assert.rejects(others.acquire('r', 30_000), (error) => {
      assert.ok(error instanceof ResourceLockedError)
      assert.match(error.message, /; held by billing on .+, pid \d+, for \d+ s$/)
      return true
    })
    await lock.release()
    assert.equal(await others.holder('r'), undefined)
    await redlock.quit()
    await others.quit()
  })

  it('that has no owner is held by another, and writes nothing', async () => {
    const lock = await plain.acquire('r', 30_000)
    const holder = await plain.holder('r')
    assert.deepEqual([holder?.owner, holder?.since, holder?.text], [{}, undefined, 'another'])
    const count = await cluster.servers[0]?.command('EXISTS', 'quorlock:owner:{r}')
    assert.equal(count, 0)
    await lock.release()
  })

  it('is asked of one resource', async () => {
    await assert.rejects(plain.holder(/** @type {any} */ (['a', 'b'])), ConfigError)
    await assert.rejects(plain.holder(/** @type {any} */ (7)), ConfigError)
    await assert.rejects(plain.holder(''), ConfigError)
  })
})

describe('an owner', () => {
  /** @type {[string, any, RegExp][]} */
  const wrong = [
    ['too large', { a: 'x'.repeat(5000) }, /owner may take 4096 bytes at most, .+, not \d+$/],
    ['without a name', { '': 'x' }, /owner must have names/],
    ['of several lines', { a: 'x\ny' }, /owner must have .+ without control characters/],
    ['that is no object', 'billing', /owner must be an object of words, not/],
    ['with a list in it', { a: ['x'] }, /owner\.a must be a string, not/],
  ]
  for (const [name, owner, reason] of wrong)
    it(`${name} is refused when the Redlock is made`, () => {
      const isReason = (/** @type {unknown} */ error) =>
        error instanceof ConfigError && reason.test(error.message)
      assert.throws(() => new Redlock(MEMORY, { owner }), isReason)
    })

  it('is the same for all locks of a Redlock', async () => {
    const redlock = new Redlock(MEMORY, { owner: { service: 'billing' } })
    assert.deepEqual(redlock.settings.owner, { service: 'billing' })
    const options = /** @type {any} */ ({ owner: { service: 'reports' } })
    await assert.rejects(redlock.acquire('r', 1000, options), /owner is a setting of the Redlock/)
  })
})
