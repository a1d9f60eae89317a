// Tests processes: they end when the user's code is done, and get no unhandled rejections.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { exitsWithin, run } from './support/program.mjs'
import { startServers } from './support/servers.mjs'
import { eventually, promptly } from './support/wait.mjs'

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
           // Long enough for the grants to be on their way, and the event loop is told of none.
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

  it('that exits during many acquisitions leaves no key of a lock that it was not told of', async () => {
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

  it('that has lost its listeners has one for a package that is loaded later', async () => {
    const { errors } = await run(
      `import { createRequire } from 'node:module'
       const require = createRequire(process.cwd() + '/')
       const first = new Redlock(urls)
       await (await first.acquire('key', 60_000)).release()
       process.removeAllListeners('exit')
       for (const name of Object.keys(require.cache)) if (!name.endsWith('.node')) delete require.cache[name]
       const own = new (require('quorlock').Redlock)(urls)
       await (await own.acquire('key', 60_000)).release()
       for (let i = 0; i < 50; i += 1) [first, own][i % 2].acquire('key' + i, 60_000)
       process.exit()`,
      cluster.urls,
    )
    assert.equal(errors, '')
    const left = await Promise.all(cluster.servers.map((server) => server.keys('key*')))
    assert.deepEqual(left.flatMap(Object.keys), [])
  })

  it('to which nothing can be added locks all the same', () =>
    ends(`
      Object.preventExtensions(process)
      const redlock = new Redlock(urls)
      await (await redlock.acquire('a', 60_000)).release()
      console.log('done')`))

  it('whose listeners are called without an exit goes on', () =>
    ends(`
      const redlock = new Redlock(urls)
      const held = await redlock.acquire('held', 60_000, { autoExtend: true })
      const pending = redlock.acquire('held', 60_000, { retryCount: -1 })
      process.emit('exit', 0)
      await pending.catch((error) => console.log(error.code))
      process.exitCode = 0 // which Node's own listener has set
      await (await redlock.acquire('a', 60_000)).release()
      await held.release()
      console.log('done')`))

  it('that exits beside a hung node waits once for all copies of the package', async () => {
    await cluster.servers[0].pause()
    try {
      await exitsWithin(
        1500,
        `import { createRequire } from 'node:module'
           const require = createRequire(process.cwd() + '/')
           const locks = []
           for (let copy = 0; copy < 30; copy += 1) {
             for (const name of Object.keys(require.cache)) if (!name.endsWith('.node')) delete require.cache[name]
             locks.push(await new (require('quorlock').Redlock)(urls).acquire('key' + copy, 60_000))
           }
           for (const lock of locks) lock.release()
           console.log('done')
           process.exit(3)`,
        cluster.urls,
      )
    } finally {
      await cluster.servers[0].resume()
    }
  })

  it('gives back what a listener releases that is called later', async () => {
    await run(
      `const redlock = new Redlock(urls)
       const lock = await redlock.acquire('r', 60_000)
       process.on('exit', () => void lock.release())
       process.exit()`,
      cluster.urls,
    )
    assert.deepEqual(await cluster.values('r'), [null, null, null])
  })

  for (const count of [3, 2_000]) {
    it(`that exits in the same breath gives back all ${count} locks that it has released`, async () => {
      const { status } = await run(
        `const redlock = new Redlock(urls)
         const names = Array.from({ length: ${count} }, (_, number) => 'breath' + number)
         const locks = await Promise.all(names.map((name) => redlock.acquire(name, 60_000)))
         for (const lock of locks) lock.release()
         process.exit(3)`,
        cluster.urls,
      )
      assert.equal(status, 3)
      for (const server of cluster.servers) {
        assert.deepEqual(await server.command('KEYS', 'breath*'), [])
      }
    })
  }

  it('gets no unhandled rejection, whatever goes wrong', async () => {
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
