// Tests client objects of other libraries: the settings of every version are read, and a client that cannot
// be read is refused at construction, with what to pass instead.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Redis, Cluster as IoredisCluster } from 'ioredis'
import * as nodeRedis from 'redis'
import * as nodeRedis4 from 'redis4'
import { ConfigError, Redlock } from 'quorlock'
import { any, IOREDIS, NODE_REDIS } from './support/clients.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/** @type {typeof IOREDIS} */
const ioredis = IOREDIS.map(([name, make]) => [
  name,
  (url, options) => make(url, { lazyConnect: true, ...options }),
])

describe('clients', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {import('./support/servers.mjs').Server} */
  let server
  before(async () => {
    cluster = await startServers(1, {
      password: 'p@w',
      users: { app: 'on >secret ~* &* +@all' },
      unix_socket: true,
    })
    server = /** @type {import('./support/servers.mjs').Server} */ (cluster.servers[0])
  })
  beforeEach(() => server.flush())
  after(() => cluster.close())

  /**
   * @param {unknown} client
   * @param {{db?: number, key?: string}} where
   */
  async function lockedBy(client, { db = 0, key = 'a' } = {}) {
    const redlock = new Redlock([any(client)])
    const lock = await redlock.acquire('a', 5000, { retryCount: 0 })
    const replies = await Promise.all([0, 1, 2, 3].map((each) => keysOf(each)))
    assert.deepEqual(
      replies.map((keys) => keys.includes(key)),
      [0, 1, 2, 3].map((each) => each === db),
      `${replies}`,
    )
    // What is no client object is shown by its address alone: it may hold a password.
    const isObject = typeof client === 'object' && client !== null && 'options' in client
    const shown = isObject ? client : redlock.nodes[0]?.address
    assert.deepEqual([...redlock.clients], [shown])
    const [stats] = await Promise.all(lock.attempts)
    assert.deepEqual([...(stats?.votesFor ?? [])], [shown])
    await lock.release()
    await redlock.quit()
  }

  /** @param {number} db */
  async function keysOf(db) {
    const keys = await server.command(
      'EVAL',
      "redis.call('SELECT', ARGV[1]) return redis.call('KEYS', '*')",
      0,
      db,
    )
    return /** @type {string[]} */ (keys)
  }

  /** What leaves the client object open, and what closes it, too. @type {['close' | 'quit', boolean][]} */
  const ways = [
    ['close', true],
    ['quit', false],
  ]

  for (const [name, make] of ioredis) {
    it(`${name}: a URL with database and password, a key prefix, a socket`, async () => {
      await lockedBy(make(`${server.url}/2`), { db: 2 })
      await lockedBy(make(server.url, { keyPrefix: 'app:' }), { key: 'app:a' })
      await lockedBy(
        make(String(server.unixUrl).replace(/^unix:\/\//, ''), { password: 'p@w', db: 1 }),
        { db: 1 },
      )
      await lockedBy(make(`redis://127.0.0.1:${server.port}`, { password: 'p@w', db: 3 }), {
        db: 3,
      })
      if (name !== 'ioredis 4') await lockedBy(make(`redis://app:secret@127.0.0.1:${server.port}`))
    })

    it(`${name}: is quit with the redlock, as in node-redlock, and spared by close()`, async () => {
      for (const [way, isSpared] of ways) {
        const client = make(server.url)
        await client.connect()
        const redlock = new Redlock([client])
        await redlock[way]()
        await assert.rejects(redlock.acquire('a', 1000), { code: 'CLOSED' })
        if (isSpared) {
          assert.equal(await client.ping(), 'PONG')
          await redlock.quit()
        }
        await eventually(() => client.status === 'end')
      }
    })
  }

  for (const [name, { createClient }] of NODE_REDIS) {
    it(`${name}: a URL with database and password, parts, a socket`, async () => {
      await lockedBy(createClient({ url: `${server.url}/2` }), { db: 2 })
      await lockedBy(
        createClient({
          socket: { host: '127.0.0.1', port: server.port },
          password: 'p@w',
          database: 1,
        }),
        { db: 1 },
      )
      await lockedBy(
        createClient({
          socket: { path: String(server.unixUrl).replace(/^unix:\/\//, '') },
          password: 'p@w',
        }),
      )
      await lockedBy(
        createClient({
          socket: { host: '127.0.0.1', port: server.port },
          username: 'app',
          password: 'secret',
        }),
      )
    })

    it(`${name}: is quit with the redlock if it is open, and spared by close()`, async () => {
      const client = createClient({ url: server.url })
      await client.connect()
      const redlock = new Redlock([client])
      await redlock.close()
      assert.equal(await client.ping(), 'PONG')
      await redlock.quit()
      assert.equal(client.isOpen, false)
      await redlock.quit()
      await new Redlock([createClient({ url: server.url })]).quit()
    })
  }

  it('node-redis 6: a key prefix', () =>
    lockedBy(nodeRedis.createClient(any({ url: server.url, keyPrefix: 'app:' })), { key: 'app:a' }))

  it('of different kinds make one redlock', async () => {
    const [second, third] = await cluster.start(2)
    const clients = [
      server.url,
      new Redis(String(second?.url), { lazyConnect: true }),
      nodeRedis.createClient({ url: String(third?.url) }),
    ]
    const redlock = new Redlock(clients)
    const lock = await redlock.acquire('a', 5000)
    await eventually(() => lock.votes.every(({ outcome }) => outcome === 'granted'))
    assert.deepEqual(await cluster.values('a'), Array(3).fill(lock.value))
    await lock.release()
    await redlock.quit()
  })

  it('take parts and URL objects', async () => {
    const { port } = server
    await lockedBy({ host: '127.0.0.1', port, password: 'p@w', db: 2 }, { db: 2 })
    await lockedBy(
      { host: '127.0.0.1', port, username: 'app', password: 'secret', keyPrefix: 'x:' },
      { key: 'x:a' },
    )
    await lockedBy({ path: String(server.unixUrl).replace(/^unix:\/\//, ''), password: 'p@w' })
    await lockedBy({ url: server.url })
    await lockedBy(new URL(server.url))
  })

  it('speak TLS with the authority and certificate that they carry', async () => {
    const files = await cluster.certificates()
    const proxy = await server.proxy({ tls: true, ask_client: true })
    const [ca, cert, key] = [files.ca, files.client, files.client_key].map((file) =>
      readFileSync(file),
    )
    const tls = { ca, cert, key: String(key) }
    const url = `rediss://:p%40w@localhost:${proxy.port}`
    for (const [, make] of ioredis) await lockedBy(make(url, { tls }))
    for (const [, { createClient }] of NODE_REDIS) {
      await lockedBy(
        createClient({
          password: 'p@w',
          socket: { host: 'localhost', port: proxy.port, tls: true, ...tls },
        }),
      )
    }
    await lockedBy({
      host: 'localhost',
      port: proxy.port,
      password: 'p@w',
      tls: { ca: [String(ca)], cert, key },
    })
    const untrusting = new Redlock([new Redis(url, { lazyConnect: true, tls: { cert, key } })], {
      retryCount: 0,
    })
    await assert.rejects(untrusting.acquire('a', 1000), {
      name: 'ExecutionError',
      code: 'QUORUM_UNREACHABLE',
      message: /TLS|certificate/i,
    })
    const nameless = any({ ...tls, servername: '' })
    await lockedBy(new Redis(url, { lazyConnect: true, tls: nameless }))
    const checkServerIdentity = () => undefined
    const careless = any({ cert, key, rejectUnauthorized: false, checkServerIdentity })
    await lockedBy(new Redis(url, { lazyConnect: true, tls: careless }))
    await proxy.close()
  })
})

/** As in node-redis 5 and 6. */
class Lent {
  get isReady() {
    return true
  }
  sendCommand() {}
}

describe('what is no usable client', () => {
  const url = 'redis://localhost:1'
  /** @type {[string, () => unknown][]} */
  const cases = [
    ['undefined', () => undefined],
    ['null', () => null],
    ['a number', () => 6379],
    ['an empty object', () => ({})],
    ['a function', () => () => {}],
    [
      'a mock',
      () => ({ options: { host: 'h' }, status: 'ready', defineCommand() {}, evalsha() {} }),
    ],
    ['an ioredis Cluster', () => new IoredisCluster([url], { lazyConnect: true })],
    [
      'an ioredis of sentinels',
      () => new Redis({ sentinels: [{ host: 'h', port: 1 }], name: 'x', lazyConnect: true }),
    ],
    ['a cluster of node-redis', () => nodeRedis.createCluster({ rootNodes: [{ url }] })],
    ['a cluster of node-redis 4', () => nodeRedis4.createCluster({ rootNodes: [{ url }] })],
    ['a pool of node-redis', () => nodeRedis.createClientPool({ url })],
    ['a client that a sentinel client lends', () => new Lent()],
    [
      'a sentinel client of node-redis',
      () => nodeRedis.createSentinel({ name: 'x', sentinelRootNodes: [{ host: 'h', port: 1 }] }),
    ],
    [
      'a credentials provider',
      () =>
        nodeRedis.createClient({
          url,
          credentialsProvider: any({
            type: 'async-credentials-provider',
            credentials: async () => ({}),
          }),
        }),
    ],
    [
      'a node-redis client of the old kind',
      () => ({ connection_options: {}, send_command() {}, sendCommand() {} }),
    ],
    ['a host of a wrong type', () => ({ host: 5 })],
    [
      'a tls setting that is code',
      () => new Redis(url, { lazyConnect: true, tls: { checkServerIdentity: () => undefined } }),
    ],
    ['another Redlock', () => new Redlock(['memory://x'])],
  ]
  for (const [name, make] of cases) {
    it(`${name} is a TypeError that says what to pass`, () => {
      assert.throws(
        () => new Redlock([any(make())]),
        (/** @type {any} */ error) => {
          assert.ok(error instanceof ConfigError, error.stack)
          assert.ok(error instanceof TypeError)
          assert.match(error.message, /pass a URL/)
          return true
        },
      )
    })
  }

  it('is no list of clients', () => {
    for (const clients of [undefined, null, 'redis://a', { host: 'a' }, 5]) {
      assert.throws(
        () => new Redlock(any(clients)),
        (error) => error instanceof ConfigError && error instanceof TypeError,
      )
    }
    assert.throws(() => new Redlock(['redis://:pw@a,redis://:pw@b']), {
      code: 'CONFIG',
      message: /several addresses; pass a list, one address each/,
    })
    assert.throws(
      () => new Redlock([]),
      /Redlock must be instantiated with at least one redis client\./,
    )
  })

  it('is no address', () => {
    for (const node of [
      'http://a',
      'redis://',
      'redis://a:0',
      'redis://:pw@[::1:123',
      'redis://a:6379,b:6379',
      'redis://a:b:c',
      'redis://a/x',
      { host: 'a', port: 70_000 },
      { url: 'redis://a', db: 1 },
      { url: 'nope://a' },
    ]) {
      assert.throws(() => new Redlock([any(node)]), ConfigError, JSON.stringify(node))
    }
  })

  it('is named twice', () => {
    for (const nodes of [
      ['redis://a', 'redis://a'],
      ['redis://a', 'redis://a:6379/1'],
      ['redis://a', new Redis('redis://a', { lazyConnect: true })],
    ]) {
      assert.throws(() => new Redlock(nodes), { code: 'CONFIG', message: /twice|one and the same/ })
    }
    const client = new Redis('redis://a', { lazyConnect: true })
    assert.equal(new Redlock([client, client]).clients.size, 1)
  })

  it('never shows a password', () => {
    for (const node of [
      'http://u:topsecret@a',
      'redis://u:topsecret@a:x',
      { host: 'a b', password: 'topsecret' },
    ]) {
      assert.throws(
        () => new Redlock([any(node)]),
        (/** @type {any} */ error) => !error.stack.includes('topsecret'),
      )
    }
  })
})
