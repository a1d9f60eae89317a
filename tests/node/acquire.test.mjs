// Tests acquiring and releasing on real servers: what the lock tells, and which keys the nodes have.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Lock, LockNotHeldError, Redlock, ResourceLockedError } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

describe('acquire', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  it('sets the value with its ttl on every node, and release takes it away', async () => {
    const before = Date.now()
    const lock = await redlock.acquire(['a'], 50_000)
    const after = Date.now()
    await eventually(async () => (await cluster.values('a')).every((value) => value === lock.value))
    for (const server of cluster.servers) {
      const left = Number(await server.command('PTTL', 'a'))
      assert.ok(left > 40_000 && left <= 50_000, `${left}`)
    }
    assert.match(lock.value, /^[0-9a-f]{40}$/)
    assert.deepEqual(lock.resources, ['a'])
    assert.ok(lock.validity > 40_000 && lock.validity <= 50_000 - 502, `${lock.validity}`)
    assert.ok(lock.isValid)
    const { expiration } = lock
    assert.ok(expiration >= before + 49_490 && expiration <= after + 49_500, `${expiration}`)
    assert.ok(Number.isSafeInteger(lock.fencingToken))
    const released = await lock.release()
    assert.equal(released.outcome, 'released')
    assert.equal(lock.validity, 0)
    assert.equal(lock.expiration, 0)
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
  })

  it('takes a string as well as an array, and all resources or none', async () => {
    const a = await redlock.acquire('a', 5000)
    await assert.rejects(redlock.acquire(['b', 'a'], 5000, { retryCount: 0 }), ResourceLockedError)
    await eventually(async () => (await cluster.values('b')).every((value) => value === null))
    await a.release()
    const both = await redlock.acquire(['b', 'a'], 5000)
    assert.deepEqual(both.resources, ['b', 'a'])
    assert.deepEqual(await cluster.values('b'), await cluster.values('a'))
    await both.release()
  })

  it('gives fencing tokens that grow', async () => {
    let last = 0
    for (let round = 0; round < 20; round += 1) {
      const lock = await redlock.acquire('a', 5000)
      assert.ok(/** @type {number} */ (lock.fencingToken) > last)
      last = /** @type {number} */ (lock.fencingToken)
      await lock.release()
    }
    const plain = await redlock.acquire('a', 5000, { fencing: false })
    assert.equal(plain.fencingToken, undefined)
    await plain.release()
  })

  it('tells what every node did', async () => {
    const lock = await redlock.acquire('a', 5000)
    await eventually(() => lock.votes.every((vote) => vote.outcome === 'granted'))
    assert.deepEqual(
      lock.votes.map(({ client }) => client),
      cluster.urls,
    )
    for (const vote of lock.votes) assert.ok(vote.latency > 0 && vote.latency < 20_000)
    const [stats] = await Promise.all(lock.attempts)
    assert.equal(stats?.membershipSize, 3)
    assert.equal(stats?.quorumSize, 2)
    assert.deepEqual([...(stats?.votesFor ?? [])].sort(), [...cluster.urls].sort())
    assert.equal(stats?.votesAgainst.size, 0)
    await lock.release()
  })

  it('keeps a waiter out until the lock is released', async () => {
    const first = await redlock.acquire('a', 60_000)
    let isHeld = true
    const waiting = redlock
      .acquire('a', 60_000, { timeout: 30_000, retryDelay: 20 })
      .then((lock) => {
        assert.equal(isHeld, false)
        return lock
      })
    await eventually(
      async () => Number(await cluster.servers[0]?.command('INFO', 'commandstats').then(evals)) > 4,
    )
    isHeld = false
    await first.release()
    const second = await waiting
    assert.ok(second.attempts.length > 1)
    await second.release()
  })

  it('refuses a second release and an extension after it', async () => {
    const lock = await redlock.acquire('a', 5000)
    await lock.release()
    const start = performance.now()
    await assert.rejects(lock.release(), { name: 'LockNotHeldError', code: 'LOCK_NOT_HELD' })
    await assert.rejects(lock.extend(1000), LockNotHeldError)
    assert.ok(performance.now() - start < 2000)
  })

  it('tells who takes a lease over no lower fencing token', async () => {
    const own = await startServers(3)
    const redlock = new Redlock(own.urls)
    const lock = await redlock.acquire('a', 30_000)
    const token = Number(lock.fencingToken)
    await eventually(async () => (await own.values('a')).every((value) => value === lock.value))
    // The first node lacks the token, as after a late grant; another that knows it is gone.
    const fences = 'quorlock:{node}:fences'
    const [first, second] = own.servers
    assert.ok(first && second)
    const [bucket] = /** @type {string[]} */ (await first.command('ZREVRANGE', fences, 0, 0))
    assert.ok(bucket)
    await first.command('ZADD', fences, token - 7, bucket)
    await second.kill()
    const taken = redlock.lease('a', lock.value)
    assert.ok((await taken.check()) > 10_000)
    assert.equal(taken.fencingToken, token)
    assert.equal(Number(await first.command('ZSCORE', fences, bucket)), token)
    await taken.release()
    const later = await redlock.acquire('a', 30_000)
    assert.ok(Number(later.fencingToken) > token)
    await redlock.quit()
    await own.close()
  })

  it('refuses work after quit', async () => {
    const own = new Redlock(cluster.urls)
    const lock = await own.acquire('a', 5000)
    await own.quit()
    await own.quit()
    await assert.rejects(own.acquire('b', 1000), { name: 'ExecutionError', code: 'CLOSED' })
    await assert.rejects(lock.extend(1000), { code: 'CLOSED' })
  })

  it('releases a lock also after quit', async () => {
    const own = new Redlock(cluster.urls)
    const [first, second] = [await own.acquire('a', 60_000), await own.acquire('b', 60_000)]
    const quitting = own.quit()
    assert.equal((await first.release()).outcome, 'released')
    await quitting
    assert.equal((await second.release()).outcome, 'released')
    await (await redlock.acquire(['a', 'b'], 1000, { retryCount: 0 })).release()
  })

  it('asks the nodes and hands over by value', async () => {
    assert.equal(await redlock.isLocked('a'), false)
    const lock = await redlock.acquire('a', 50_000)
    assert.equal(await redlock.isLocked('a'), true)
    const other = new Redlock(cluster.urls)
    const taken = other.lease('a', lock.value)
    assert.equal(taken.validity, 0)
    const wrong = /** @type {any} */ (5)
    assert.throws(() => other.lease('a', wrong), { code: 'CONFIG', message: /must be a string/ })
    const extended = other.lease('a', lock.value)
    await extended.extend(50_000)
    assert.equal(extended.fencingToken, lock.fencingToken)
    assert.ok((await taken.check()) > 40_000)
    await taken.extend(90_000)
    assert.ok(taken.validity > 80_000)
    const claimed = new Lock(other, ['a'], lock.value, [], Date.now() + 60_000)
    assert.ok(claimed.expiration > Date.now() + 40_000)
    await claimed.extend(30_000)
    assert.ok(claimed.expiration <= Date.now() + 30_000)
    await Promise.all(cluster.servers.map((server) => server.command('SET', 'a', 'thief')))
    await assert.rejects(claimed.check(), { code: 'LEASE_LOST' })
    assert.equal(claimed.expiration, 0)
    await Promise.all(
      cluster.servers.map((server) => server.command('SET', 'a', lock.value, 'PX', 90_000)),
    )
    assert.equal((await taken.release()).outcome, 'released')
    assert.equal(await redlock.isLocked('a'), false)
    await assert.rejects(lock.check(), { code: 'LEASE_LOST' })
    await other.quit()
  })

  it('leaves no key where a close ends it', async () => {
    const proxies = await Promise.all(cluster.servers.map((server) => server.proxy()))
    const urls = proxies.map((proxy) => proxy.url)
    await Promise.all(proxies.map((proxy) => proxy.delay(10)))
    /** @type {string[]} */
    const ended = []
    for (let moment = 0; moment < 24; moment += 4) {
      const own = new Redlock(urls, { nodeTimeout: 5000 })
      await (await own.acquire('warm', 1000)).release()
      const names = Array.from({ length: 20 }, (_, number) => `a${moment}-${number}`)
      const acquiring = names.map((name) => own.acquire(name, 60_000))
      await sleep(moment)
      await own.close()
      const results = await Promise.allSettled(acquiring)
      ended.push(...names.filter((_, at) => results[at]?.status === 'rejected'))
    }
    assert.ok(ended.length > 0, 'all were quicker')
    await sleep(100) // what was sent to the nodes has arrived
    const values = () => Promise.all(ended.map((name) => cluster.values(name)))
    await eventually(async () => (await values()).flat().every((value) => value === null), 5000)
    await Promise.all(proxies.map((proxy) => proxy.close()))
  })

  it('releases what was asked for in the turn of the close', async () => {
    const own = new Redlock(cluster.urls)
    const lock = await own.acquire('a', 60_000)
    const releasing = lock.release()
    await own.quit()
    assert.equal((await releasing).outcome, 'released')
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
  })

  it('tells the state of every node', async () => {
    await (await redlock.acquire('a', 1000)).release()
    assert.deepEqual(
      redlock.nodes.map(({ state }) => state),
      ['healthy', 'healthy', 'healthy'],
    )
    await cluster.servers[2]?.kill()
    await eventually(() => redlock.nodes[2]?.state === 'down')
    assert.ok(redlock.nodes[2]?.detail)
    await cluster.servers[2]?.restart()
  })
})

/** @param {unknown} info */
function evals(info) {
  return /cmdstat_evalsha:calls=(\d+)/.exec(String(info))?.[1] ?? 0
}
