// Tests that the present key prefix and credentials of a client object count, not its first options.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Redis } from 'ioredis'
import { Redlock } from 'quorlock'
import { any, IOREDIS, NODE_REDIS } from './support/clients.mjs'
import { startServers } from './support/servers.mjs'

describe('the key prefix of clients', () => {
  const [a, b, c] = ['redis://a', 'redis://b', 'redis://c']

  for (const [name, make] of IOREDIS) {
    it(`is the same for all, and stays: ${name}`, async () => {
      /** @param {string} keyPrefix */
      const options = (keyPrefix) => ({ lazyConnect: true, keyPrefix })
      const clients = [make(a, options('x:')), make(b, options('y:')), make(c, options('x:'))]
      assert.throws(() => new Redlock(clients), {
        code: 'CONFIG',
        message: /different key prefixes: .* the key prefix 'x:', but .* the key prefix 'y:'/,
      })
      const redlock = new Redlock([clients[0]])
      clients[0].options.keyPrefix = 'z:'
      await assert.rejects(redlock.acquire('r', 1000), { code: 'CONFIG', message: /'z:' now/ })
    })
  }

  it('does not count where the client itself ignores it', async () => {
    const cluster = await startServers(1)
    const options = any({ url: cluster.urls[0], keyPrefix: 'app:' })
    for (const [, { createClient }] of NODE_REDIS.slice(0, 2)) {
      const redlock = new Redlock([createClient(options)])
      const lock = await redlock.acquire('r', 5000)
      assert.deepEqual(await cluster.values('r'), [lock.value])
      await lock.release()
      await redlock.close()
    }
    await cluster.close()
  })
})

describe('the credentials of a client', () => {
  it('that were given by auth() are said to be missing, and where to put them', async () => {
    const cluster = await startServers(1, { password: 'secret' })
    const url = `redis://127.0.0.1:${cluster.servers[0]?.port}`
    const clients = IOREDIS.map(([, make]) => make(url, { enableReadyCheck: false }))
    const words =
      /wants a password, but the address has none \(of a client object its options count, not what auth\(\) gave it\)/
    try {
      for (const client of clients) {
        client.on('error', () => {})
        const isAlone = client === clients[2] // version 6 says hello first, and needs it for that
        if (!isAlone) await client.auth('secret')
        const redlock = new Redlock([client], { retryCount: 0 })
        redlock.on('warning', ({ message }) => assert.fail(message))
        await assert.rejects(redlock.acquire('a', 1000), { message: words })
        assert.match(String(redlock.nodes[0]?.detail), words)
        await redlock.close()
      }
    } finally {
      for (const client of clients) client.disconnect()
      await cluster.close()
    }
  })

  it('that change are told, without a word of them', async () => {
    const client = new Redis('redis://127.0.0.1:1', { lazyConnect: true, password: 'old-secret' })
    const redlock = new Redlock([client], { retryCount: 0 })
    /** @type {any[]} */
    const told = []
    redlock.on('warning', (warning) => told.push(warning))
    client.options.password = 'new-secret'
    for (const name of ['a', 'b']) await assert.rejects(redlock.acquire(name, 1000))
    const [warning] = told
    assert.deepEqual([told.length, warning.name], [1, 'credentials-changed'])
    assert.match(warning.message, /^redis:\/\/127\.0\.0\.1:1: .* make a new Redlock$/)
    assert.ok(!warning.message.includes('secret'))
  })
})
