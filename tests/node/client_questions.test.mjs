// Tests that a client object has one question to answer at a time, whatever the number of Redlocks that have it, and that
// questions keep none of them in memory.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Redlock } from 'quorlock'
import { clientTestbed } from './support/client_testbed.mjs'
import { any, IOREDIS, OPEN_NODE_REDIS } from './support/clients.mjs'
import { eventually } from './support/wait.mjs'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc')

const { cluster, clients, redlocks, connect, redlockOf } = await clientTestbed()

describe('the question to a client', () => {
  for (const [name, make] of OPEN_NODE_REDIS) {
    it(`is one for many Redlocks: ${name}`, async () => {
      const [server] = cluster.servers
      await connect(make, [String(server?.url)], { commandsQueueMaxLength: 20 })
      await server?.pause()
      const late = Array.from({ length: 30 }, () =>
        redlockOf().acquire('a', 5000, { timeout: 100 }),
      )
      for (const each of late) await assert.rejects(each, { code: 'QUORUM_UNREACHABLE' })
      const own = clients[0].get('x') // there is room in the queue
      await server?.resume()
      assert.equal(await own, null)
      await eventually(async () => {
        for (const redlock of redlocks) await (await redlock.acquire('b', 5000)).release()
        return true
      })
    })

    it(`is asked again for those who came after it was sent: ${name}`, async () => {
      await connect(make)
      await Promise.all(cluster.servers.map((server) => server.pause()))
      const first = redlockOf().acquire('a', 20_000)
      const selections = Promise.all(clients.map((client) => client.select(2)))
      const second = redlockOf().acquire('b', 20_000)
      for (const server of cluster.servers) await server.resume()
      await selections
      const { value } = await second
      assert.equal(await clients[0].get('b'), value)
      await (await first).release()
    })

    it(`keeps no Redlock in memory: ${name}`, async () => {
      await connect(make)
      const busy = clients[2].sendCommand(['BLPOP', 'something', '0'])
      /** @type {WeakRef<Redlock>[]} */
      const refs = []
      for (let i = 0; i < 40; i += 1) {
        const redlock = new Redlock(clients)
        refs.push(new WeakRef(redlock))
        await redlock.using(`job-${i}`, 5000, async () => {})
        if (i % 2 === 0) await redlock.close() // the others are only dropped
      }
      await eventually(() => {
        gc()
        return refs.filter((ref) => ref.deref() !== undefined).length < 3
      }, 5000)
      await cluster.servers[2]?.command('RPUSH', 'something', 'x')
      await busy
    })
  }

  it('takes one listener of a client of node-redis 4, however often this package is loaded', async () => {
    const [[, make]] = any(OPEN_NODE_REDIS)
    await connect(make)
    const require = createRequire(import.meta.url)
    const before = clients[0].listenerCount('ready')
    for (let copy = 0; copy < 12; copy += 1) {
      const own = Object.keys(require.cache).filter((name) => /bindings-node.*js$/.test(name))
      for (const name of own) delete require.cache[name]
      redlocks.push(new (require('quorlock').Redlock)(clients))
    }
    assert.equal(clients[0].listenerCount('ready'), before + 1)
    const lockedByAll = async () => {
      for (const redlock of redlocks) await (await redlock.acquire('a', 5000)).release()
    }
    await lockedByAll()
    const again = clients.map((client) => new Promise((resolve) => client.once('ready', resolve)))
    for (const server of cluster.servers) await server.command('CLIENT', 'KILL', 'TYPE', 'normal')
    await Promise.all(again)
    const asked = await questions()
    await lockedByAll()
    assert.ok((await questions()) >= asked + 12)

    /** How often the first client was asked. */
    async function questions() {
      const info = String(await cluster.servers[0]?.command('INFO', 'commandstats'))
      return Number(/cmdstat_client\|info:calls=(\d+)/.exec(info)?.[1])
    }
  })

  for (const [name, make] of IOREDIS)
    it(`is asked again if the one that waited for the connection was lost: ${name}`, async () => {
      const options = { autoResendUnfulfilledCommands: false, retryStrategy: () => 20 }
      await connect(make, cluster.urls, options)
      for (const client of clients) client.blpop('something', 0).catch(() => {})
      await assert.rejects(redlockOf({ retryCount: 0 }).acquire('a', 5000), {
        code: 'QUORUM_UNREACHABLE',
      })
      const again = clients.map((client) => once(client, 'ready'))
      for (const server of cluster.servers) await server.command('CLIENT', 'KILL', 'TYPE', 'normal')
      await Promise.all(again)
      for (const redlock of [redlocks[0], redlockOf()])
        await (await /** @type {Redlock} */ (redlock).acquire('a', 5000)).release()
    })

  for (const [name, make] of [...OPEN_NODE_REDIS, ...IOREDIS])
    it(`is not asked again over a connection where it was refused: ${name}`, async () => {
      const [server] = await cluster.start(1, {
        users: { app: ['on', '>secret', '~*', '&*', '+@all', '-client'] },
      })
      const options = { username: 'app', password: 'secret', disableClientInfo: true }
      await connect(make, [`redis://app:secret@127.0.0.1:${server?.port}`], options)
      await clients[0].ping()
      const redlock = redlockOf()
      redlock.on('warning', () => {})
      await (await redlock.acquire('a', 5000)).release()
      await sleep(1100) // clients are asked again after a second
      await clients[0].multi().set('x', '1').exec()
      const { calls } = await refusals()
      const next = redlockOf()
      const [warning] = [new Promise((resolve) => next.once('warning', resolve))]
      await (await redlock.acquire('a', 5000)).release()
      await (await next.acquire('a', 5000)).release()
      assert.equal(/** @type {any} */ (await warning).name, 'unknown-database')
      assert.equal((await refusals()).calls, calls)

      /** How often the server has refused a question. */
      async function refusals() {
        const info = String(await server?.command('INFO', 'commandstats'))
        const found = /cmdstat_client\|info:.*rejected_calls=(\d+)/.exec(info)
        assert.ok(found, info)
        return { calls: Number(found[1]) }
      }
    })
})
