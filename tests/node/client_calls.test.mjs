// Tests what calls end with while clients have not told their databases: closed meanwhile, to go on without a lock, with
// which error, and who is told.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { NodeError, QuorumUnreachableError, Redlock } from 'quorlock'
import { clientTestbed } from './support/client_testbed.mjs'
import { OPEN_NODE_REDIS } from './support/clients.mjs'
import { exitsWithin } from './support/program.mjs'
import { eventually } from './support/wait.mjs'

const { cluster, clients, connect, redlockOf } = await clientTestbed()

describe('a call while clients have not told their databases', () => {
  /** @param {(url: string) => any} make */
  async function connected(make, settings = {}) {
    await connect(make)
    const redlock = redlockOf(settings)
    redlock.on('warning', () => {})
    return redlock
  }

  for (const [name, make] of OPEN_NODE_REDIS) {
    it(`ends when its Redlock is closed: ${name}`, async () => {
      const manager = await connected(make)
      await Promise.all(clients.map((client) => client.select(2)))
      const acquiring = assert.rejects(manager.acquire('a', 5000), { code: 'CLOSED' })
      await manager.close()
      await acquiring
      assert.ok(manager.isClosed)
      const other = redlockOf()
      await Promise.all(cluster.servers.map((server) => server.pause()))
      const begun = performance.now()
      const waiting = assert.rejects(other.acquire('b', 5000), { code: 'CLOSED' })
      await sleep(100)
      await other.close()
      await waiting
      assert.ok(performance.now() - begun < 900)
    })

    it(`may go on without a lock: ${name}`, async () => {
      const manager = await connected(make, { onUnreachable: 'proceed', retryCount: 1 })
      await Promise.all(cluster.servers.map((server) => server.pause()))
      const begun = performance.now()
      const lock = await manager.acquire('a', 5000)
      assert.ok(lock.degraded)
      assert.equal(
        await manager.using('b', 5000, async (_, { lock: { degraded } }) => degraded),
        true,
      )
      assert.ok(performance.now() - begun < 6000)
    })

    it(`waits for those that are not connected as long as it may: ${name}`, async () => {
      const manager = await connected(make, { retryCount: -1, restartGuard: 'off' })
      for (const client of clients) client.on('error', () => {})
      await (await manager.acquire('a', 5000)).release()
      await Promise.all(cluster.servers.map((server) => server.kill()))
      await eventually(() => clients.every(({ isReady }) => !isReady))
      const late = assert.rejects(manager.acquire('b', 5000, { timeout: 1300 }), {
        message: /has not told within 1300 ms which database it uses \(it is not connected\)/,
      })
      const waiting = manager.acquire('c', 5000, { timeout: 20_000 })
      waiting.catch(() => {})
      await late.finally(() => Promise.all(cluster.servers.map((server) => server.restart())))
      await (await waiting).release()
    })

    it(`does not leave a node out of a held lock for good: ${name}`, async () => {
      const manager = await connected(make, { restartGuard: 'off' })
      for (const client of clients) client.on('error', () => {})
      await (await manager.acquire('a', 5000)).release()
      const [, , server] = cluster.servers
      assert.ok(server)
      await server.kill()
      try {
        await eventually(() => !clients[2].isReady)
        await manager.using('b', 1500, async (_, { lock }) => {
          await server.restart()
          await eventually(async () => (await server.command('GET', 'b')) === lock.value)
        })
      } finally {
        await server.restart()
      }
    })

    it(`has an error as of nodes that cannot be reached: ${name}`, async () => {
      const manager = await connected(make, { retryCount: 0 })
      await Promise.all(cluster.servers.map((server) => server.pause()))
      await assert.rejects(manager.acquire(['a', 'b'], 5000), (error) => {
        assert.ok(error instanceof QuorumUnreachableError)
        assert.equal(error.name, 'ExecutionError')
        assert.match(
          error.message,
          /retry window\. 'a', 'b': \S+, .* the client has not told within/,
        )
        assert.deepEqual(error.resources, ['a', 'b'])
        assert.ok(error.elapsed >= 900)
        assert.equal(error.attempts.length, 1)
        assert.ok(
          error.votes.every((vote) => vote.error instanceof NodeError),
          error.message,
        )
        assert.ok(error.votes.every(({ client }, index) => client === clients[index]))
        return true
      })
      await assert.rejects(manager.isLocked('a'), { name: 'QuorumUnreachableError' })
      const begun = performance.now()
      assert.equal(await manager.holder('a'), undefined)
      assert.ok(performance.now() - begun < 900)
    })

    it(`is told once that a node is left out for long: ${name}`, async () => {
      const manager = await connected(make)
      /** @type {any[]} */
      const told = []
      manager.on('warning', (warning) => {
        if (warning.name === 'unknown-database') told.push(warning)
      })
      const lockFor = async (/** @type {number} */ millis) => {
        const end = performance.now() + millis
        while (performance.now() < end) {
          await (await manager.acquire('a', 5000)).release()
          await sleep(20)
        }
      }
      for (const count of [1, 2]) {
        const busy = clients[2].sendCommand(['BLPOP', 'something', '0'])
        await lockFor(1500)
        assert.equal(told.length, count - 1)
        await lockFor(1500)
        assert.equal(told.length, count)
        await cluster.servers[2]?.command('RPUSH', 'something', 'x')
        await busy
        await lockFor(100)
        // It has to tell its database again over its next connection.
        const ready = new Promise((resolve) => clients[2].once('ready', resolve))
        const id = await clients[2].sendCommand(['CLIENT', 'ID'])
        await cluster.servers[2]?.command('CLIENT', 'KILL', 'ID', id)
        await ready
      }
      assert.match(
        told[0].message,
        /has not told yet .* no locks are taken on this node until it has/,
      )
      assert.equal(told[0].address, cluster.urls[2])
      await eventually(async () => {
        const lock = await manager.acquire('b', 5000)
        await lock.release()
        return lock.votes.every(({ outcome }) => outcome === 'granted')
      })
    })
  }

  it('may wait for longer than a timer lasts', async () => {
    const client = { isOpen: true, isReady: false, socketEpoch: 0, options: {} }
    const away = { ...client, sendCommand: () => new Promise(() => {}) }
    const redlock = new Redlock([away])
    const calls = [2 ** 31, 2 ** 32, Number.MAX_SAFE_INTEGER].map((timeout) =>
      assert.rejects(redlock.acquire('a', 1000, { timeout }), { code: 'CLOSED' }),
    )
    await sleep(50)
    await redlock.close()
    await Promise.all(calls)
  })

  it('waits for those that are not connected as for servers where it has no end', async () => {
    const client = { isOpen: true, isReady: false, socketEpoch: 0, options: {} }
    const away = { ...client, sendCommand: () => new Promise(() => {}) }
    const redlock = new Redlock([away], { unreachableTimeout: 1500 })
    for (const options of [{ timeout: Infinity }, { retryCount: -1 }])
      await assert.rejects(redlock.acquire('a', 1000, options), {
        message: /has not told within 1500 ms which database it uses/,
      })
    await redlock.close()
  })

  it('gives those that are slower than a short unreachableTimeout time to answer', async () => {
    const client = { isOpen: true, isReady: true, socketEpoch: 1 }
    const sendCommand = () => sleep(200, 'id=1 db=0')
    const slow = cluster.servers.map(({ port }) => ({
      ...client,
      options: { socket: { port } },
      sendCommand,
    }))
    for (const options of [{ timeout: Infinity }, { retryCount: -1 }]) {
      const redlock = new Redlock(slow, { unreachableTimeout: 20 })
      await (await redlock.acquire('a', 1000, options)).release()
      await redlock.close()
    }
  })

  it('leaves nothing behind when it is aborted', () =>
    exitsWithin(
      3000,
      `
      const client = { isOpen: true, isReady: false, socketEpoch: 0, options: {} }
      client.sendCommand = () => new Promise(() => {})
      const signal = AbortSignal.timeout(100)
      const acquiring = new Redlock([client]).acquire('a', 1000, { timeout: 15_000, signal })
      await acquiring.catch(({ name }) => console.log(name, 'done'))
      process.exitCode = 3
      `,
      [],
    ))
})
