// Tests that worker threads which are ended at any moment crash nothing, and that their locks end with them.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { startServers } from '../node/support/servers.mjs'
import { eventually } from '../node/support/wait.mjs'
import { times } from './counts.mjs'
import { run } from './program.mjs'

const WORKER = `
  import('quorlock').then(async ({ Redlock }) => {
    const { parentPort, workerData } = await import('node:worker_threads')
    const settings = { retryCount: -1, retryDelay: 2, retryJitter: 1 }
    const redlock = new Redlock(workerData, settings)
    redlock.on('error', () => {})
    const aborting = async (name) => {
      for (;;) {
        const signal = AbortSignal.timeout(Math.ceil(Math.random() * 4))
        const lock = await redlock.acquire(name, 300, { signal }).catch(() => {})
        await lock?.release().catch(() => {})
      }
    }
    const busy = async (name) => {
      for (;;) {
        const lock = await redlock.acquire(name, 300)
        void lock.signal
        await lock.extend(300)
        void lock.attempts
        await lock.release()
      }
    }
    redlock.acquire('kept', 300, { autoExtend: true }).catch(() => {})
    redlock.using('used', 300, () => new Promise(() => {})).catch(() => {})
    for (let i = 0; i < 8; i += 1) {
      busy('busy' + (i % 3)).catch(() => {})
      aborting('busy' + (i % 3)).catch(() => {})
    }
    parentPort.postMessage('ready')
  })`

describe('worker threads', () => {
  /** @type {import('../node/support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  after(() => cluster.close())

  it('are ended at any moment, from loading the addon on', { timeout: 900_000 }, async () => {
    const ended = await run(
      `
      import { Worker } from 'node:worker_threads'
      import { once } from 'node:events'
      const code = ${JSON.stringify(WORKER)}
      const start = () => new Worker(code, { eval: true, workerData: urls })
      const main = new Redlock(urls)
      const held = await main.acquire('main', 60_000, { autoExtend: true })
      for (let round = 0; round < ${times(12, 400)}; round += 1) {
        const workers = [start(), start()]
        if (round % 3) await Promise.all(workers.map((worker) => once(worker, 'message')))
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 60))
        await Promise.all(workers.map((worker) => worker.terminate()))
      }
      console.log(held.isValid)
      await held.release()
      await main.quit()
      console.log('done')`,
      cluster.urls,
      { within: times(120_000, 800_000) },
    )
    assert.equal(ended.errors, '')
    assert.equal(ended.output, 'true\ndone\n')
    assert.deepEqual([ended.status, ended.signal], [0, null])
    // What was held runs out, since nobody extends it; what was waited for is taken back.
    const left = async () =>
      (await Promise.all(cluster.servers.map((server) => server.keys('*'))))
        .flatMap(Object.keys)
        .filter((key) => !key.startsWith('quorlock:'))
    await eventually(async () => (await left()).length === 0, 10_000)
  })

  it('leave nothing behind in the process', { timeout: 900_000 }, async () => {
    const ended = await run(
      `
      import { Worker } from 'node:worker_threads'
      import { once } from 'node:events'
      import { readdirSync } from 'node:fs'
      const code = ${JSON.stringify(WORKER)}
      const counts = () => ['fd', 'task'].map((name) => readdirSync('/proc/self/' + name).length)
      const rounds = async (count) => {
        for (let round = 0; round < count; round += 1) {
          const worker = new Worker(code, { eval: true, workerData: urls })
          await once(worker, 'message')
          await worker.terminate()
        }
      }
      await rounds(5)
      const before = counts()
      await rounds(${times(15, 300)})
      // The connections of managers that nobody has are closed on the engine's thread.
      let after = counts()
      for (let i = 0; i < 100 && after[0] > before[0] + 8; i += 1) {
        await new Promise((resolve) => setTimeout(resolve, 50))
        after = counts()
      }
      console.log(JSON.stringify([before, after]))`,
      cluster.urls,
      { within: times(120_000, 800_000) },
    )
    assert.equal(ended.errors, '')
    const [before, after] = JSON.parse(ended.output)
    assert.ok(after[0] <= before[0] + 8, `file descriptors: ${before[0]} -> ${after[0]}`)
    assert.ok(after[1] <= before[1] + 1, `threads: ${before[1]} -> ${after[1]}`)
  })
})
