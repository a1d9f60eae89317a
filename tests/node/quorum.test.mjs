// Tests nodes that are down, hung, slow or refuse: a quorum decides at once, and no key stays behind.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { ExecutionError, QuorumUnreachableError, ResourceLockedError } from 'quorlock'
import * as quorlock from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually, promptly } from './support/wait.mjs'

/** Servers come and go here, or are used in part: what the guard makes of that is tested by itself. */
class Redlock extends quorlock.Redlock {
  /**
   * @param {string[]} nodes
   * @param {Partial<import('quorlock').Settings>} [settings]
   */
  constructor(nodes, settings) {
    super(nodes, { restartGuard: 'off', ...settings })
  }
}

describe('a quorum', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(5)
  })
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  /** @param {number[]} indexes */
  const servers = (...indexes) =>
    indexes.map(
      (index) => /** @type {import('./support/servers.mjs').Server} */ (cluster.servers[index]),
    )
  /** @param {number[]} indexes */
  const urls = (...indexes) => servers(...indexes).map(({ url }) => url)

  it('of three with one that is down', async () => {
    const [down] = servers(2)
    await down?.kill()
    // A node that is waited for would take its time in each of ten rounds.
    const redlock = new Redlock(urls(0, 1, 2), { nodeTimeout: 1000 })
    const start = performance.now()
    for (let round = 0; round < 10; round += 1) await (await redlock.acquire('a', 9000)).release()
    assert.ok(performance.now() - start < 9000, `${performance.now() - start}`)
    await down?.restart()
    const lock = await eventually(async () => {
      const lock = await redlock.acquire('a', 9000)
      if ((await down?.command('GET', 'a')) === lock.value) return lock
      await lock.release()
      return undefined
    })
    await lock.release()
    await redlock.quit()
  })

  it('of five with one hung and one dead goes on at its pace, and takes them back', async () => {
    const redlock = new Redlock(cluster.urls, { nodeTimeout: 1000 })
    const rounds = async () => {
      const times = []
      for (let round = 0; round < 50; round += 1) {
        const start = performance.now()
        await (await redlock.acquire('a', 9000)).release()
        times.push(performance.now() - start)
      }
      return /** @type {number} */ (times.sort((a, b) => a - b)[25])
    }
    const healthy = await rounds()
    const [hung, dead] = servers(3, 4)
    await hung?.pause()
    await dead?.kill()
    // Generous, because other tests run beside this one; a peer takes 100 ms and more here.
    await promptly(healthy * 3 + 5, rounds)
    await hung?.resume()
    await dead?.restart()
    await eventually(() => redlock.nodes.every(({ state }) => state === 'healthy'))
    const lock = await redlock.acquire('b', 9000)
    await eventually(() => lock.votes.every(({ outcome }) => outcome === 'granted'))
    await lock.release()
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await redlock.quit()
  })

  it('of four with a split vote is lost, and settles', async () => {
    const redlock = new Redlock(urls(0, 1, 2, 3))
    await Promise.all(
      servers(0, 1).map((server) => server.command('SET', 'a', 'other', 'PX', 60_000)),
    )
    const start = performance.now()
    await assert.rejects(redlock.acquire('a', 5000, { retryCount: 0 }), ResourceLockedError)
    assert.ok(performance.now() - start < 5000)
    await eventually(
      async () => (await cluster.values('a')).filter((value) => value === null).length === 3,
    )
    await redlock.quit()
  })

  it('that cannot be reached is told apart from a lock that is held, with each fault', async () => {
    const redlock = new Redlock(urls(0, 1, 2), { retryCount: 1, retryDelay: 10 })
    await Promise.all(servers(1, 2).map((server) => server.kill()))
    const error = await redlock.acquire('a', 5000).catch((caught) => caught)
    assert.ok(error instanceof QuorumUnreachableError)
    assert.ok(error instanceof ExecutionError)
    assert.equal(error instanceof ResourceLockedError, false)
    assert.equal(error.code, 'QUORUM_UNREACHABLE')
    assert.match(
      error.message,
      /^The operation was unable to achieve a quorum during its retry window\./,
    )
    for (const { port } of servers(1, 2)) assert.ok(error.message.includes(String(port)))
    assert.deepEqual(error.votes.map(({ outcome }) => outcome).slice(1), ['failed', 'failed'])
    const stats = await error.attempts.at(-1)
    assert.deepEqual([...(stats?.votesAgainst.keys() ?? [])], urls(1, 2))
    for (const vote of stats?.votesAgainst.values() ?? []) assert.equal(vote.name, 'NodeError')
    await eventually(async () => (await servers(0)[0]?.command('GET', 'a')) === null)
    await Promise.all(servers(1, 2).map((server) => server.restart()))
    await redlock.quit()
  })

  it('is not lost to the keys of tries that failed', async () => {
    // Three contenders, one try each, over and over: a contender that is left alone gets it at once.
    const contenders = [0, 1, 2].map(() => new Redlock(urls(0, 1, 2), { retryCount: 0 }))
    for (let round = 0; round < 40; round += 1) {
      const results = await Promise.allSettled(
        contenders.map((redlock) => redlock.acquire('a', 30_000)),
      )
      const won = results.filter((result) => result.status === 'fulfilled')
      assert.ok(won.length <= 1)
      for (const each of won) await each.value.release()
      const alone = await contenders[round % 3]?.acquire('a', 30_000, {
        retryCount: 1,
        retryDelay: 10,
        retryJitter: 0,
      })
      await alone?.release()
    }
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await Promise.all(contenders.map((redlock) => redlock.quit()))
  })

  it('leaves no key on a node that hung during the try', async () => {
    const redlock = new Redlock(urls(0, 1, 2), { retryCount: 0 })
    await (await redlock.acquire('warm', 1000)).release()
    await Promise.all(servers(1, 2).map((server) => server.pause()))
    await assert.rejects(redlock.acquire('a', 60_000), QuorumUnreachableError)
    await Promise.all(servers(1, 2).map((server) => server.resume()))
    await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    await redlock.quit()
  })

  it('is tried as often as retryCount says, and no longer than timeout', async () => {
    const redlock = new Redlock(urls(0, 1, 2), { retryDelay: 10, retryJitter: 0 })
    const held = await redlock.acquire('a', 60_000)
    for (const retryCount of [0, 1, 5]) {
      const error = await redlock.acquire('a', 5000, { retryCount }).catch((caught) => caught)
      assert.equal(error.attemptCount, retryCount + 1)
      assert.equal(error.attempts.length, retryCount + 1)
    }
    await promptly(500, async () => {
      const start = performance.now()
      const options = /** @type {const} */ ({ timeout: 400, wait: 'poll' })
      const late = await redlock.acquire('a', 5000, options).catch((caught) => caught)
      const took = performance.now() - start
      assert.ok(took > 350, `${took}`)
      assert.ok(late.attemptCount > 11 || took > 500, 'goes on until the timeout')
      return took
    })
    const [once, zero] = await Promise.all([
      redlock.acquire('a', 5000, { timeout: 20, retryDelay: 1000 }).catch((caught) => caught),
      redlock.acquire('a', 5000, { timeout: 0 }).catch((caught) => caught),
    ])
    assert.ok(once.attemptCount >= 1)
    assert.equal(zero.attemptCount, 1)
    await held.release()
    await (await redlock.acquire('a', 5000, { timeout: 5000 })).release()
    await redlock.quit()
  })

  it('keeps to the timeout while every node hangs', async () => {
    const redlock = new Redlock(urls(0, 1, 2))
    await (await redlock.acquire('warm', 1000)).release()
    await Promise.all(servers(0, 1, 2).map((server) => server.pause()))
    await promptly(400, async () => {
      const start = performance.now()
      await assert.rejects(redlock.acquire('a', 5000, { timeout: 300 }), QuorumUnreachableError)
      return performance.now() - start
    })
    await Promise.all(servers(0, 1, 2).map((server) => server.resume()))
    await redlock.quit()
  })

  it('counts a grant whose reply was lost: no lock is refused to itself', async () => {
    const proxies = await Promise.all(servers(0, 1, 2).map((server) => server.proxy()))
    const redlock = new Redlock(
      proxies.map(({ url }) => url),
      { retryCount: 0, nodeTimeout: 10_000 },
    )
    await (await redlock.acquire('warm', 1000)).release()
    const lost = await Promise.all(
      [0, 1].map((index) => proxies[index]?.swallowReply('lost-reply')),
    )
    const lock = await redlock.acquire('lost-reply', 30_000)
    await Promise.all(lost.map((each) => each?.wait()))
    assert.ok(lock.isValid)
    assert.equal((await lock.release()).outcome, 'released')
    await eventually(async () =>
      (await cluster.values('lost-reply')).every((value) => value === null),
    )
    await redlock.quit()
    await Promise.all(proxies.map((proxy) => proxy.close()))
  })

  it('excludes: 40 tasks, 400 acquisitions, no overlap, tokens strictly growing', async () => {
    const redlocks = [0, 1, 2, 3].map(
      () => new Redlock(urls(0, 1, 2, 3, 4), { timeout: 60_000, retryDelay: 20, retryJitter: 15 }),
    )
    let inside = 0
    let last = 0
    const task = async (/** @type {number} */ number) => {
      for (let round = 0; round < 10; round += 1) {
        const lock = await /** @type {Redlock} */ (redlocks[number % 4]).acquire('hot', 10_000)
        inside += 1
        assert.equal(inside, 1)
        assert.ok(/** @type {number} */ (lock.fencingToken) > last)
        last = /** @type {number} */ (lock.fencingToken)
        await new Promise((resolve) => setImmediate(resolve))
        inside -= 1
        await lock.release()
      }
    }
    await Promise.all(Array.from({ length: 40 }, (_, number) => task(number)))
    await eventually(async () => (await cluster.values('hot')).every((value) => value === null))
    await Promise.all(redlocks.map((redlock) => redlock.quit()))
  })
})
