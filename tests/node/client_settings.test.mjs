// Tests that the present server, key prefix and credentials of a client object count, not its first options.
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

describe('the server of a client', () => {
  const urls = ['redis://a:7001', 'redis://[::1]:7002', 'redis://c:6379']
  /** @param {Redlock} redlock */
  const addresses = (redlock) => redlock.nodes.map(({ address }) => address)

  for (const [name, { createClient }] of NODE_REDIS.slice(1)) {
    it(`is that of its URL, where other clients have the same socket options: ${name}`, () => {
      const socket = { connectTimeout: 1000 }
      const clients = urls.map((url) => createClient({ url, socket }))
      createClient({ url: 'redis://d:7004', socket })
      clients[0].duplicate({ url: 'redis://e:7005' })
      assert.deepEqual(addresses(new Redlock(clients)), urls)
      const { host, port } = { host: 'f', port: 7006 }
      const without = createClient({ socket: { host, port } })
      assert.deepEqual(addresses(new Redlock([without])), ['redis://f:7006'])
    })

    it(`is refused if others may have changed a port that its URL does not say: ${name}`, () => {
      const names = ['redis://a', 'redis://b', 'redis://c']
      for (const [socket, port] of any([
        [{}, 6379],
        [{ port: 7001 }, 7001],
      ])) {
        const clients = names.map((url) => createClient({ url, socket }))
        assert.deepEqual(addresses(new Redlock(clients.slice(2))), [`redis://c:${port}`])
        const others = clients.slice(0, 2)
        if (port === 6379) assert.equal(new Redlock(others).nodes.length, 2)
        else assert.throws(() => new Redlock(others), { code: 'CONFIG', message: /shares its/ })
      }
    })
  }

  for (const [name, { createClient }] of NODE_REDIS)
    it(`is that of its socket options, where its URL is empty: ${name}`, () => {
      const client = createClient({ url: '', socket: { host: 'a', port: 7001 } })
      assert.deepEqual(addresses(new Redlock([client])), ['redis://a:7001'])
    })

  it('cannot be told where node-redis 4 connects to that of another client', async () => {
    const [[, { createClient }]] = any(NODE_REDIS)
    const socket = { connectTimeout: 1000 }
    const [first, last] = ['redis://a:7001', 'redis://b:7002'].map((url) =>
      createClient({ url, socket }),
    )
    assert.throws(() => new Redlock([first]), { code: 'CONFIG', message: /shares its socket opt/ })
    const redlock = new Redlock([last])
    first.duplicate({ url: 'redis://d:7004' })
    await assert.rejects(redlock.acquire('r', 1000), { code: 'CONFIG', message: /shares its/ })
  })

  for (const [name, make] of IOREDIS) {
    it(`stays the same: ${name}`, async () => {
      const client = make('redis://a', { lazyConnect: true })
      const redlock = new Redlock([client])
      client.options.host = 'b'
      const message = /the client of redis:\/\/a:6379 connects to b:6379 from now on/
      await assert.rejects(redlock.acquire('r', 1000), { code: 'CONFIG', message })
    })

    it(`may be named by the settings of TLS: ${name}`, () => {
      const tls = { host: 'b', port: 7002 }
      const client = make('redis://a:7001', { lazyConnect: true, tls })
      assert.deepEqual(addresses(new Redlock([client])), ['rediss://b:7002'])
    })

    it(`is its own machine, where the settings of TLS name none: ${name}`, () => {
      for (const host of [null, undefined]) {
        const client = make('redis://a:7001', { lazyConnect: true, tls: { host } })
        assert.deepEqual(addresses(new Redlock([client])), ['rediss://localhost:7001'])
      }
    })
  }
})
