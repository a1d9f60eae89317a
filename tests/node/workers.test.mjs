// Tests worker threads, which may be ended at any moment.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { exitsWithin, run } from './support/program.mjs'
import { startServers } from './support/servers.mjs'
import { nativeHalf } from './support/native_half.mjs'
import { eventually } from './support/wait.mjs'

describe('a worker thread', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  /** @param {string} code */
  const worker = (code) =>
    new Worker(
      `import('quorlock').then(async ({ Redlock }) => {
      const { parentPort } = require('node:worker_threads')
      const redlock = new Redlock(${JSON.stringify(cluster.urls)})
      ${code}
    })`,
      { eval: true },
    )

  it('has locks of its own, and ends by itself', async () => {
    const threads = [0, 1, 2].map((number) =>
      worker(`
        for (let i = 0; i < 10; i += 1) {
          await redlock.using('shared', 2000, { timeout: 10_000, retryDelay: 10, retryJitter: 5 }, async () => parentPort.postMessage(${number}))
        }`),
    )
    let messages = 0
    for (const thread of threads) thread.on('message', () => (messages += 1))
    await Promise.all(threads.map((thread) => once(thread, 'exit')))
    assert.equal(messages, 30)
    await eventually(async () => (await cluster.values('shared')).every((value) => value === null))
  })

  it('that is ended with operations under way takes them back and crashes nothing', async () => {
    const { Redlock } = await import('quorlock')
    const redlock = new Redlock(cluster.urls)
    const held = await redlock.acquire('held', 60_000)
    for (let round = 0; round < 8; round += 1) {
      const thread = worker(`
        const other = await redlock.acquire('own${round}', 300, { autoExtend: true })
        for (let i = 0; i < 20; i += 1) redlock.acquire(['many${round}' + i, 'held'], 60_000, { retryCount: -1, retryDelay: 5, retryJitter: 4 })
        redlock.using('using${round}', 300, (signal) => new Promise(() => {}))
        parentPort.postMessage('ready')`)
      await once(thread, 'message')
      await new Promise((resolve) => setTimeout(resolve, round * 3))
      await thread.terminate()
    }
    const left = async () =>
      (await Promise.all(cluster.servers.map((server) => server.keys('*'))))
        .flatMap(Object.keys)
        .filter((key) => !key.startsWith('quorlock:'))
    // What was held runs out, since nobody extends it; what was waited for is taken back.
    await eventually(async () => (await left()).every((key) => key === 'held'))
    assert.ok(held.isValid)
    await held.release()
    await redlock.quit()
  })

  it('that is ended between the results and their callers takes the locks back', async () => {
    const { Redlock } = await import('quorlock')
    const thread = worker(`
      await (await redlock.acquire('first', 60_000)).release()
      const { native } = require(${JSON.stringify(nativeHalf)})
      const { take } = native
      native.take = (...args) => {
        const results = take(...args)
        if (results.length > 0) {
          parentPort.postMessage('taken')
          for (;;);
        }
        return results
      }
      for (let i = 0; i < 20; i += 1) redlock.acquire('own' + i, 60_000)`)
    await once(thread, 'message')
    await thread.terminate()
    const redlock = new Redlock(cluster.urls)
    for (let i = 0; i < 20; i += 1) {
      const lock = await redlock.acquire('own' + i, 1000, { timeout: 5000 })
      await lock.release()
    }
    await redlock.quit()
  })

  it('may be the only one to load the addon', async () => {
    const code = `
      import { Worker } from 'node:worker_threads'
      import { once } from 'node:events'
      for (let i = 0; i < 5; i += 1) {
        const worker = new Worker(\`import('quorlock').then(async ({ Redlock }) => {
          const { parentPort } = await import('node:worker_threads')
          const redlock = new Redlock(\${JSON.stringify(urls)})
          const lock = await redlock.acquire('only', 300, { autoExtend: true, timeout: 5000 })
          parentPort.postMessage('held')
          await lock.release()
          redlock.acquire('other', 300, { autoExtend: true })
        })\`, { eval: true })
        await once(worker, 'message')
        await worker.terminate()
      }
      console.log('done')`
    const child = spawn(
      process.execPath,
      ['--input-type=module', '-e', `const urls = ${JSON.stringify(cluster.urls)};${code}`],
      { cwd: import.meta.dirname },
    )
    let output = ''
    child.stdout.on('data', (data) => (output += String(data)))
    child.stderr.on('data', (data) => (output += String(data)))
    const [status, signal] = await once(child, 'close')
    assert.equal(output, 'done\n')
    assert.deepEqual([status, signal], [0, null])
  })

  it('whose process exits is not waited for long beside a hung node', async () => {
    const waiting = `import('quorlock').then(async ({ Redlock }) => {
      const redlock = new Redlock(${JSON.stringify(cluster.urls)})
      await (await redlock.acquire('own' + Math.random(), 60_000)).release()
      for (let i = 0; i < 5; i += 1) redlock.acquire('held', 60_000, { retryCount: -1 }).catch(() => {})
      const { parentPort } = await import('node:worker_threads')
      parentPort.postMessage('asked')
    })`
    await Promise.all(cluster.servers.map((server) => server.command('SET', 'held', 'x')))
    await cluster.servers[2].pause()
    try {
      await exitsWithin(
        2500,
        `import { Worker } from 'node:worker_threads'
           import { once } from 'node:events'
           const threads = Array.from({ length: 40 }, () => new Worker(${JSON.stringify(waiting)}, { eval: true }))
           await Promise.all(threads.map((thread) => once(thread, 'message')))
           console.log('done')
           process.exit(3)`,
        cluster.urls,
      )
    } finally {
      await cluster.servers[2].resume()
    }
  })

  /**
   * Acquisitions of a worker whose process exits, after `deed`; with a node that hangs, if there is such a deed.
   * @param {number} count
   * @param {string} deed
   */
  const takesBack = async (count, deed) => {
    await Promise.all(cluster.servers.map((server) => server.command('SET', 'held', 'x')))
    // The worker's event loop is told of no lock before the end.
    const waiting = `import('quorlock').then(async ({ Redlock }) => {
      const { parentPort } = await import('node:worker_threads')
      const redlock = new Redlock(${JSON.stringify(cluster.urls)})
      redlock.acquire('held', 60_000, { retryCount: -1 }).catch(() => {})
      setTimeout(() => {
        for (let i = 0; i < ${count}; i += 1) redlock.acquire('key' + i, 60_000)
        parentPort.postMessage('asked')
        for (;;);
      }, 20)
    })`
    for (let round = 0; round < 5; round += 1) {
      if (deed !== '') await cluster.servers[2].pause()
      const { status, errors } = await run(
        `import { Worker } from 'node:worker_threads'
         import { once } from 'node:events'
         const redlock = new Redlock(urls)
         await (await redlock.acquire('own', 60_000)).release()
         await once(new Worker(${JSON.stringify(waiting)}, { eval: true }), 'message')
         ${deed}
         process.exit(3)`,
        cluster.urls,
      )
      if (deed !== '') await cluster.servers[2].resume()
      assert.deepEqual([status, errors], [3, ''])
      for (const server of deed === '' ? cluster.servers : cluster.servers.slice(0, 2)) {
        assert.deepEqual(Object.keys(await server.keys('key*')), [])
        assert.deepEqual(Object.keys(await server.keys('quorlock:queue:*')), [])
      }
    }
  }

  it('whose process exits takes back what it has under way', () => takesBack(40, ''))

  it('whose process exits has time for that, though exit listeners were called before', () =>
    // Which takes as long as an exit may take.
    takesBack(
      800,
      'for (let i = 0; i < 12; i += 1) { process.emit("exit"); await new Promise(setImmediate) }',
    ))
})
