// Tests processes: they end when the user's code is done, get no unhandled rejections, and worker threads may
// be ended at any moment.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { startServers } from './support/servers.mjs'
import { eventually, promptly } from './support/wait.mjs'

/** Ends with what it printed, its code and how long it lived after `done` was printed. */
async function run(
  /** @type {string} */ code,
  /** @type {string[]} */ urls,
  /** @type {string[]} */ flags = [],
) {
  const head = `import { Redlock } from 'quorlock'; const urls = ${JSON.stringify(urls)};`
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', head + code], {
    cwd: import.meta.dirname,
  })
  let [output, errors, doneAt] = ['', '', NaN]
  child.stdout.on('data', (data) => {
    output += String(data)
    if (output.includes('done')) doneAt = performance.now()
  })
  child.stderr.on('data', (data) => (errors += String(data)))
  const limit = setTimeout(() => child.kill('SIGKILL'), 20_000)
  const [status] = await once(child, 'close')
  clearTimeout(limit)
  return { output, errors, status, lingered: performance.now() - doneAt }
}

describe('a process', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  /** @param {string} code */
  const ends = (code) =>
    promptly(1000, async () => {
      const { output, errors, status, lingered } = await run(code, cluster.urls)
      assert.equal(errors, '')
      assert.equal(status, 0)
      assert.match(output, /done/)
      await cluster.reset()
      return lingered
    })

  it('ends by itself with connections open and locks of every kind behind it', () =>
    ends(`
      const redlock = new Redlock(urls)
      redlock.on('error', () => {})
      const lock = await redlock.acquire('a', 60_000)
      void lock.signal
      await (await redlock.acquire('b', 60_000, { autoExtend: true })).release()
      await redlock.using('c', 60_000, async () => {})
      await redlock.acquire('c', 60_000, { retryCount: 0 })
      await redlock.acquire('c', 60_000, { retryCount: 0 }).catch(() => {})
      console.log('done')`))

  it('ends with one node hung', async () => {
    await cluster.servers[2]?.pause()
    await ends(`
      const redlock = new Redlock(urls)
      const lock = await redlock.acquire('a', 60_000)
      await lock.release()
      console.log('done')`)
  })

  it('ends although a Redlock was made and never used', () =>
    ends("new Redlock(urls); console.log('done')"))

  it('waits for what is under way', async () => {
    const { output } = await run(
      `const redlock = new Redlock(urls)
       const held = await redlock.acquire('a', 300)
       redlock.acquire('a', 1000, { timeout: 15_000 }).then((lock) => { console.log('acquired'); return lock.release() })`,
      cluster.urls,
    )
    assert.match(output, /acquired/)
  })

  it('lives while a lock extends itself, until it is lost', async () => {
    const { output, errors } = await run(
      `const redlock = new Redlock(urls)
       const lock = await redlock.acquire('a', 1500, { autoExtend: true, maxHold: 2000 })
       lock.signal.addEventListener('abort', () => console.log('lost', lock.signal.error.code))`,
      cluster.urls,
    )
    assert.equal(errors, '')
    assert.match(output, /lost LEASE_LOST/)
  })

  for (const followed of [false, true])
    it(`ends when a lock that extends itself was forgotten, and extends it no more${followed ? ', though followed' : ''}`, async () => {
      await promptly(1000, async () => {
        const { output, lingered } = await run(
          `const redlock = new Redlock(urls)
         const { tracingChannel } = await import('node:diagnostics_channel')
         if (${followed}) tracingChannel('quorlock:hold').subscribe({ asyncEnd() {} })
         await (async () => void (await redlock.acquire('a', 400, { autoExtend: true })))()
         for (let i = 0; i < 10; i += 1) { await new Promise((resolve) => setTimeout(resolve, 5)); gc() }
         console.log('done')`,
          cluster.urls,
          ['--expose-gc'],
        )
        assert.match(output, /done/)
        return lingered
      })
      await eventually(async () => (await cluster.values('a')).every((value) => value === null))
    })

  it('that drops a Redlock with listeners has it collected', async () => {
    const { output } = await run(
      `let left = 20
       const registry = new FinalizationRegistry(() => (left -= 1))
       const use = async () => {
         const redlock = new Redlock(urls)
         registry.register(redlock)
         redlock.on('acquired', () => {})
         const lock = await redlock.acquire('r', 5000)
         await lock.release()
       }
       for (let i = 0; i < 20; i += 1) await use()
       for (let i = 0; i < 200 && left > 2; i += 1) { await new Promise((resolve) => setTimeout(resolve, 10)); gc() }
       console.log(left > 2 ? left + ' are kept' : 'collected')
       process.exit()`,
      cluster.urls,
      ['--expose-gc'],
    )
    assert.match(output, /collected/)
  })

  it('that exits in the middle of a wait leaves no key and ends at once', async () => {
    await promptly(1000, async () => {
      const started = await run(
        `const redlock = new Redlock(urls)
         const lock = await redlock.acquire('mine', 60_000)
         lock.release()
         for (let i = 0; i < 20; i += 1) redlock.acquire('key' + i, 60_000)
         process.nextTick(() => {
           // Long enough for the grants to be on their way, and the event loop hears of none.
           const end = performance.now() + 0.5
           while (performance.now() < end);
           console.log('done')
           process.exit(3)
         })`,
        cluster.urls,
      )
      assert.equal(started.status, 3)
      const left = (await Promise.all(cluster.servers.map((server) => server.keys('*')))).flatMap(
        Object.keys,
      )
      assert.deepEqual(
        left.filter((key) => !key.startsWith('quorlock:')),
        [],
      )
      return started.lingered
    })
  })

  it('that exits in a crowd leaves no key of a lock that it was not told of', async () => {
    const { output } = await run(
      `const redlock = new Redlock(urls)
       await (await redlock.acquire('first', 60_000)).release()
       let told = 0
       process.on('exit', () => console.log(told))
       for (let i = 0; i < 2000; i += 1) redlock.acquire('key' + i, 60_000).then(() => (told += 1))
       setImmediate(() => process.exit())`,
      cluster.urls,
    )
    for (const server of cluster.servers) {
      const keys = Object.keys(await server.keys('key*'))
      assert.ok(keys.length <= Number(output), `${keys.length} keys, ${output} told`)
    }
  })

  it('that has loaded the package many times has one listener, and leaves no key at its exit', async () => {
    const { output, errors } = await run(
      `import { createRequire } from 'node:module'
       const require = createRequire(process.cwd() + '/')
       const before = process.listenerCount('exit')
       const all = []
       for (let copy = 0; copy < 12; copy += 1) {
         for (const name of Object.keys(require.cache)) if (!name.endsWith('.node')) delete require.cache[name]
         const own = new (require('quorlock').Redlock)(urls)
         await (await own.acquire('key', 60_000)).release()
         all.push(own)
       }
       console.log(process.listenerCount('exit') - before)
       all.forEach((own, copy) => own.acquire('key' + copy, 60_000))
       process.exit()`,
      cluster.urls,
    )
    assert.equal(errors, '')
    assert.equal(output, '1\n')
    const left = await Promise.all(cluster.servers.map((server) => server.keys('key*')))
    assert.deepEqual(left.flatMap(Object.keys), [])
  })

  it('that exits in the same breath gives back what it has released', async () => {
    const { status } = await run(
      `const redlock = new Redlock(urls)
       const locks = await Promise.all(['a', 'b', 'c'].map((name) => redlock.acquire(name, 60_000)))
       for (const lock of locks) lock.release()
       process.exit(3)`,
      cluster.urls,
    )
    assert.equal(status, 3)
    for (const name of ['a', 'b', 'c']) {
      assert.deepEqual(await cluster.values(name), [null, null, null])
    }
  })

  it('hears of no unhandled rejection, whatever goes wrong', async () => {
    await cluster.servers[0]?.kill()
    await cluster.servers[1]?.pause()
    const { output, errors, status } = await run(
      `process.on('unhandledRejection', (reason) => console.log('unhandled', reason))
       const redlock = new Redlock(urls, { retryCount: 1, retryDelay: 10 })
       redlock.on('warning', () => {}) // of nodes that take no part
       const errors = []
       const signal = AbortSignal.timeout(300)
       for (const options of [{}, { timeout: 200 }, { signal, retryCount: -1 }]) {
         const error = await redlock.acquire('a', 400, options).catch((error) => error)
         errors.push(error.attempts)
       }
       const working = new Redlock(urls.slice(2), { retryCount: 0 })
       working.on('error', () => {})
       const lock = await working.acquire('a', 150, { autoExtend: true, maxHold: 200 })
       lock.attempts
       await working.acquire('a', 100).catch((error) => error.attempts)
       await working.using('b', 100, { maxHold: 100 }, () => new Promise((resolve) => setTimeout(resolve, 400))).catch(() => {})
       // Time in which a late rejection could come.
       await new Promise((resolve) => setTimeout(resolve, 500))
       await working.quit()
       console.log('done')`,
      cluster.urls,
    )
    assert.equal(errors, '')
    assert.equal(status, 0)
    assert.doesNotMatch(output, /unhandled/)
    assert.match(output, /done/)
    await cluster.servers[0]?.restart()
  })

  it('meets what an error listener throws as an uncaught exception, and the operation ends all the same', async () => {
    const { output } = await run(
      `process.on('uncaughtException', (error) => console.log('uncaught', error.message))
       const redlock = new Redlock(urls, { retryCount: 0 })
       redlock.on('error', () => { throw new Error("the listener's own") })
       await redlock.acquire('a', 1000)
       const error = await redlock.acquire('a', 1000).catch((error) => error)
       console.log('rejected', error.code)`,
      cluster.urls,
    )
    assert.match(output, /uncaught the listener's own/)
    assert.match(output, /rejected LOCK_NOT_ACQUIRED/)
  })
})

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

  it('whose process exits takes back what it has under way', async () => {
    await Promise.all(cluster.servers.map((server) => server.command('SET', 'held', 'x')))
    // The worker's event loop hears of no lock before the end.
    const waiting = `import('quorlock').then(async ({ Redlock }) => {
      const { parentPort } = await import('node:worker_threads')
      const redlock = new Redlock(${JSON.stringify(cluster.urls)})
      redlock.acquire('held', 60_000, { retryCount: -1 }).catch(() => {})
      setTimeout(() => {
        for (let i = 0; i < 40; i += 1) redlock.acquire('key' + i, 60_000)
        parentPort.postMessage('asked')
        for (;;);
      }, 20)
    })`
    for (let round = 0; round < 5; round += 1) {
      const { status, errors } = await run(
        `import { Worker } from 'node:worker_threads'
         import { once } from 'node:events'
         await once(new Worker(${JSON.stringify(waiting)}, { eval: true }), 'message')
         process.exit(3)`,
        cluster.urls,
      )
      assert.deepEqual([status, errors], [3, ''])
      for (const server of cluster.servers) {
        assert.deepEqual(Object.keys(await server.keys('key*')), [])
        assert.deepEqual(Object.keys(await server.keys('quorlock:queue:*')), [])
      }
    }
  })
})
