// A lock at the end of an `await using` block, which is its Symbol.asyncDispose.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { inspect } from 'node:util'
import { LeaseLostError, Redlock } from 'quorlock'

const redlock = new Redlock(['memory://dispose-a', 'memory://dispose-b', 'memory://dispose-c'], {
  retryCount: 0,
})

describe('Symbol.asyncDispose', () => {
  it('releases the lock', async () => {
    const lock = await redlock.acquire('a', 5000)
    assert.equal(await lock[Symbol.asyncDispose](), undefined)
    assert.equal(lock.validity, 0)
    await (await redlock.acquire('a', 5000)).release()
  })

  it('does nothing to a lock that was released', async () => {
    const lock = await redlock.acquire('a', 5000)
    await lock.release()
    await lock[Symbol.asyncDispose]()
  })

  it('tells that the lock was lost', async () => {
    const lock = await redlock.acquire('a', 20)
    // Not only its validity is over, but the keys are gone: another may have held it.
    while (await redlock.isLocked('a')) await new Promise((resolve) => setImmediate(resolve))
    await assert.rejects(lock[Symbol.asyncDispose](), LeaseLostError)
  })
})

describe('a lock', () => {
  it('shows itself in a line', async () => {
    const lock = await redlock.acquire(['invoice:42', 'b'], 9000)
    assert.match(inspect(lock), /^<Lock 'invoice:42', 'b' 8\.\ds left 3\/3 nodes>$/)
    await lock.release()
    assert.match(inspect(lock), /^<Lock 'invoice:42', 'b' released>$/)
  })
})
