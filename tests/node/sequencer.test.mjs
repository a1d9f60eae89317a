// Tests that a lock can be named to others by one text, and that they can verify it.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ConfigError, QuorumUnreachableError, Redlock, Sequencer } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { startServers } from './support/servers.mjs'

const MEMORY = ['memory://', 'memory://', 'memory://']

describe('a sequencer', () => {
  it('is its text', () => {
    const sequencer = Sequencer.parse('a%2cb,stock%40berlin@17')
    assert.deepEqual(sequencer.resources, ['a,b', 'stock@berlin'])
    assert.equal(sequencer.token, 17)
    assert.equal(`${sequencer}`, 'a%2Cb,stock%40berlin@17')
    assert.equal(JSON.stringify({ sequencer }), '{"sequencer":"a%2Cb,stock%40berlin@17"}')
  })

  for (const [text, reason] of /** @type {const} */ ([
    ['', /no '@'/],
    ['invoice:42@', /fencing token/],
    ['a,a@7', /twice/],
    ['a@b@7', /%40/],
    ['a%4@7', /hexadecimal/],
    ['a@9007199254740992', /above 2\^53/],
  ]))
    it(`is not '${text}'`, async () => {
      const isReason = (/** @type {unknown} */ error) =>
        error instanceof ConfigError && reason.test(error.message)
      assert.throws(() => Sequencer.parse(text), isReason)
      await assert.rejects(new Redlock(MEMORY).verify(text), isReason)
    })

  it('is no number', () => {
    assert.throws(() => Sequencer.parse(/** @type {any} */ (17)), ConfigError)
  })
})

describe('a lock', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('is verified by others from its record to its release', async () => {
    const others = new Redlock(cluster.urls)
    const lock = await redlock.acquire(['r', 'a@b'], 30_000)
    const { sequencer } = lock
    assert.ok(sequencer)
    assert.equal(`${sequencer}`, `r,a%40b@${lock.fencingToken}`)
    assert.equal(await others.verify(sequencer), false)
    assert.equal(await lock.recordSequencer(), true)
    assert.equal(await others.verify(sequencer), true)
    assert.equal(await others.verify(String(sequencer)), true)
    assert.equal(await others.verify(`r,a%40b@${Number(lock.fencingToken) + 1}`), false)
    await lock.release()
    assert.equal(await others.verify(sequencer), false)
    await others.quit()
  })

  it('without a fencing token has no sequencer', async () => {
    const lock = await redlock.acquire('r', 30_000, { fencing: false })
    assert.equal(lock.sequencer, undefined)
    assert.equal(await lock.recordSequencer(), false)
    await lock.release()
  })

  it('that is degraded has no sequencer', async () => {
    const settings = /** @type {const} */ ({ onUnreachable: 'proceed', unreachableTimeout: 0 })
    const lock = await new Redlock(['redis://127.0.0.1:1'], settings).acquire('r', 30_000)
    assert.throws(() => lock.sequencer, QuorumUnreachableError)
    await assert.rejects(lock.recordSequencer(), QuorumUnreachableError)
  })
})

it('too few nodes cannot tell', async () => {
  const cluster = await startServers(3)
  const redlock = new Redlock(cluster.urls)
  const lock = await redlock.acquire('r', 30_000)
  await lock.recordSequencer()
  await cluster.servers[0]?.kill()
  await cluster.servers[1]?.kill()
  await assert.rejects(redlock.verify(String(lock.sequencer)), QuorumUnreachableError)
  await redlock.quit()
  await cluster.close()
})
