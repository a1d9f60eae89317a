// Tests that memory, threads and file descriptors do not grow, however many operations there were.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { startServers } from '../node/support/servers.mjs'
import { times } from './counts.mjs'
import { run } from './program.mjs'

const HEAD = `
  import { readdirSync } from 'node:fs'
  const redlock = new Redlock(urls, { retryDelay: 2, retryJitter: 1 })
  redlock.on('error', () => {})
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
  async function measured() {
    // Finalizers run between the turns of the event loop.
    for (let i = 0; i < 5; i += 1) { gc(); await pause(5) }
    const { rss, heapUsed, external } = process.memoryUsage()
    const [files, threads] = ['fd', 'task'].map((name) => readdirSync('/proc/self/' + name).length)
    return { rss, heap: heapUsed + external, files, threads }
  }
  async function grown(work, rounds) {
    // The first lot fills what is kept on purpose: caches, compiled code, pools of the allocator.
    for (let round = 0; round < rounds / 4; round += 1) await work(round)
    const before = await measured()
    for (let round = 0; round < rounds; round += 1) await work(round)
    console.log(JSON.stringify([before, await measured()]))
    process.exit(0)
  }
`

/**
 * What is done, and how often in full.
 *
 * @type {Record<string, [code: string, full: number]>}
 */
const WORKS = {
  'acquire and release': [
    `async () => { await (await redlock.acquire('r', 10_000)).release() }`,
    100_000,
  ],
  'using, with everything that can be asked': [
    `async (round) => {
      await redlock.using(['r' + (round % 100)], 10_000, async (signal, { lock }) => {
        await lock.extend(10_000)
        signal.addEventListener('abort', () => {})
        void lock.votes
        await Promise.all(lock.attempts)
      })
    }`,
    20_000,
  ],
  'many at once': [
    `async () => {
      const one = async (name) => (await redlock.acquire(name, 10_000)).release()
      await Promise.all(Array.from({ length: 10 }, (_, i) => one('r' + i)))
    }`,
    10_000,
  ],
  refused: [
    `async (round) => {
      if (round === 0) await redlock.acquire('held', 3_600_000).catch(() => {})
      await redlock.acquire('held', 1000, { retryCount: 0 }).catch(() => {})
    }`,
    20_000,
  ],
  aborted: [
    `async (round) => {
      if (round === 0) await redlock.acquire('busy', 3_600_000).catch(() => {})
      const controller = new AbortController()
      const { signal } = controller
      const waiting = redlock.acquire('busy', 1000, { signal, retryCount: -1 }).catch(() => {})
      if (round % 2) await new Promise(setImmediate)
      controller.abort()
      await waiting
    }`,
    20_000,
  ],
  'forgotten locks': [
    `async (round) => {
      const lock = await redlock.acquire('f' + round, 50, { autoExtend: round % 2 === 0 })
      if (round % 3) void lock.signal
      if (round % 200 === 0) { gc(); await pause(0) }
    }`,
    20_000,
  ],
  managers: [
    `async (round) => {
      const own = new Redlock(urls)
      own.on('error', () => {})
      await own.acquire('m' + round, 100)
      if (round % 2) await own.quit()
      if (round % 20 === 0) { gc(); await pause(0) }
    }`,
    2_000,
  ],
}

describe('nothing grows', () => {
  /** @type {import('../node/support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  after(() => cluster.close())

  for (const [name, [work, full]] of Object.entries(WORKS)) {
    it(name, { timeout: 1_200_000 }, async () => {
      await cluster.reset()
      const rounds = times(full / 100, full)
      const ended = await run(`${HEAD}\nawait grown(${work}, ${rounds})`, cluster.urls, {
        within: times(120_000, 1_100_000),
        // V8 grows the space of young objects to three times this, in MiB, when it sees fit.
        flags: ['--expose-gc', '--max-semi-space-size=2'],
      })
      assert.equal(ended.errors, '')
      const [first, last] = JSON.parse(ended.output)
      const told = `${ended.output.trim()} after ${rounds} more rounds`
      if (process.env.QUORLOCK_TORTURE) console.log(`${name}: ${told}`)
      assert.ok(last.threads <= first.threads + 1, told)
      assert.ok(last.files <= first.files + 20, told)
      assert.ok(last.heap <= first.heap + Math.max(2e6, rounds * 64), told)
      assert.ok(last.rss <= first.rss + Math.max(48e6, rounds * 200), told)
    })
  }
})
