// Tests the end of a process with operations under way, many times: its own status, no crash and no hang.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { startServers } from '../node/support/servers.mjs'
import { times } from './counts.mjs'
import { run } from './program.mjs'

/** What is under way. */
const WORKS = {
  acquisitions: `
    const settings = { retryCount: -1, retryDelay: 2, retryJitter: 1 }
    const redlock = new Redlock(urls, settings)
    const busy = async (name) => { for (;;) await (await redlock.acquire(name, 5000)).release() }
    for (let i = 0; i < 20; i += 1) busy('busy' + (i % 5)).catch(() => {})`,
  'locks that extend themselves and are lost': `
    const redlock = new Redlock(urls, { retryCount: -1, retryDelay: 2, retryJitter: 1 })
    redlock.on('error', () => {})
    const lose = async (name) => {
      for (;;) {
        const lock = await redlock.acquire(name, 30, { autoExtend: true, maxHold: 40 })
        lock.signal.addEventListener('abort', () => {})
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
    for (let i = 0; i < 10; i += 1) lose('lost' + i).catch(() => {})
    redlock.using('used', 30, () => new Promise(() => {})).catch(() => {})`,
  'managers that come and go': `
    const come = async () => {
      for (;;) {
        const own = new Redlock(urls, { retryCount: 0 })
        own.on('error', () => {})
        await own.acquire('own', 1000).catch(() => {})
        if (Math.random() < 0.5) own.quit().catch(() => {})
      }
    }
    come()`,
}

/**
 * How it ends, and with which status or signal.
 *
 * @type {Record<string, [code: string, status: number | null, signal: string | null]>}
 */
const ENDINGS = {
  'process.exit': ['process.exit(3)', 3, null],
  'an exception': ["throw new Error('the end')", 1, null],
  'a rejection': ["void Promise.reject(new Error('the end'))", 1, null],
  'a signal': ["process.kill(process.pid, 'SIGTERM')", null, 'SIGTERM'],
  abort: ['process.reallyExit(4)', 4, null],
}

describe('a process that ends with operations under way', () => {
  /** @type {import('../node/support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  after(() => cluster.close())

  for (const [work, code] of Object.entries(WORKS)) {
    for (const [ending, [last, status, signal]] of Object.entries(ENDINGS)) {
      it(`${work}, by ${ending}`, async () => {
        for (let round = 0; round < times(2, 60); round += 1) {
          const moment = Math.random() * 150
          const ended = await run(`${code}\nsetTimeout(() => { ${last} }, ${moment})`, cluster.urls)
          assert.equal(ended.hung, false, ended.errors)
          assert.deepEqual([ended.status, ended.signal], [status, signal], ended.errors)
          assert.doesNotMatch(ended.errors, /panic|FATAL|Check failed/)
        }
      })
    }
  }
})
