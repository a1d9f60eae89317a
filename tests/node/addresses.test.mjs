// Tests nodes given as objects: options of client libraries are accepted as they are, and a misspelt part
// that matters is refused.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { ConfigError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'

/** @typedef {import('./support/servers.mjs').Server} Server */

describe('an object of parts', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Server} */
  let server
  before(async () => {
    cluster = await startServers(1, { password: 'p@w', unix_socket: true })
    server = /** @type {Server} */ (cluster.servers[0])
  })
  beforeEach(() => server.flush())
  after(() => cluster.close())

  /**
   * @param {any} node
   * @param {{db?: number, key?: string}} where
   */
  async function locks(node, { db = 0, key = 'r' } = {}) {
    const redlock = new Redlock([node])
    const lock = await redlock.acquire('r', 5000, { retryCount: 0 })
    const script = "redis.call('SELECT', ARGV[1]) return redis.call('GET', KEYS[1])"
    assert.equal(await server.command('EVAL', script, 1, key, db), lock.value)
    await lock.release()
    await redlock.close()
  }

  it('may be the options of ioredis', () =>
    locks(
      {
        ...{ host: '127.0.0.1', port: server.port, password: 'p@w', db: 2, keyPrefix: 'app:' },
        ...{ lazyConnect: true, connectTimeout: 1000, maxRetriesPerRequest: 0, family: 4 },
        ...{ retryStrategy: () => 50, enableReadyCheck: true, name: 'mymaster', role: 'master' },
        ...{ sentinels: null, keepAlive: 0, noDelay: true, showFriendlyErrorStack: true },
      },
      { db: 2, key: 'app:r' },
    ))

  it('may be the options of node-redis', async () => {
    const { port } = server
    const socket = { host: '127.0.0.1', port, connectTimeout: 1000, reconnectStrategy: () => 50 }
    const rest = { password: 'p@w', pingInterval: 1000, disableOfflineQueue: true, RESP: 3 }
    await locks({ socket, database: 3, name: 'worker-1', ...rest }, { db: 3 })
    const path = String(server.unixUrl).replace(/^unix:\/\//, '')
    await locks({ socket: { path }, ...rest })
    await locks({ url: server.url, socket: { connectTimeout: 1000 }, commandsQueueMaxLength: 9 })
  })

  it('may be the keyword arguments of redis-py', () =>
    locks({
      ...{ host: '127.0.0.1', port: server.port, password: 'p@w', db: 0 },
      ...{ decode_responses: true, socket_timeout: 1, socket_connect_timeout: 1 },
      ...{ health_check_interval: 30, retry_on_timeout: true, client_name: 'worker-1' },
    }))

  it('may be a URL with a key prefix', () =>
    locks({ url: `${server.url}/1`, keyPrefix: 'a&b=%:' }, { db: 1, key: 'a&b=%:r' }))

  for (const [part, meant] of Object.entries({
    prot: 'port',
    hots: 'host',
    passwd: 'password',
    pasword: 'password',
    user: 'username',
    userName: 'username',
    pass: 'password',
    auth: 'password',
    ssl: 'tls',
    ssl_ca_certs: 'tls',
    ssl_check_hostname: 'tls',
    ssl_password: 'tls',
    select: 'db',
    TLS: 'tls',
    key_prefix: 'keyPrefix',
    keyprefix: 'keyPrefix',
    prefix: 'keyPrefix',
    DB: 'db',
    databse: 'database',
    unix_socket_path: 'path',
    sokcet: 'socket',
    durabel: 'durable',
  })) {
    it(`does not overlook ${part}`, () => {
      const node = /** @type {any} */ ({ host: 'a', [part]: 'topsecret' })
      assert.throws(
        () => new Redlock([node]),
        (error) => {
          assert.ok(error instanceof ConfigError)
          assert.equal(
            error.message,
            `a node address has no part '${part}': did you mean '${meant}'?`,
          )
          return true
        },
      )
    })
  }

  for (const [node, words] of /** @type {[any, RegExp][]} */ ([
    [{ url: 'redis://a', db: 1 }, /with a url takes no 'db' beside it/],
    [{ url: 'redis://a', socket: { host: 'b' } }, /with a url takes no 'socket.host' beside it/],
    [{ host: 'a', socket: { host: 'b' } }, /with a socket takes no 'host' beside it/],
    [{ host: 'a', db: 1, database: 2 }, /one of db and database/],
    [{ socket: 'a' }, /socket of a node must be an object, not a string/],
    [{ socket: { host: 'a', prot: 1 } }, /no part 'prot': did you mean 'port'/],
    [{ host: 'a', sentinels: [{ host: 'b', port: 1 }] }, /may lead to another server/],
    [{ host: 'a', credentialsProvider: {} }, /code that cannot be taken over/],
    [{ host: 'a', credential_provider: {} }, /code that cannot be taken over/],
    [{ host: 'a', redis_connect_func: () => {} }, /code that cannot be followed/],
    [{ host: 'a', connection_pool: {} }, /has settings of its own/],
    [{ host: 'a', keyPrefix: Buffer.from('x') }, /keyPrefix of a node must be a string/],
    [{ url: 'redis://a', keyPrefix: 5 }, /keyPrefix of a node must be a string/],
  ])) {
    it(`is refused where it says two things, or what cannot be followed: ${words}`, () => {
      assert.throws(() => new Redlock([node]), { code: 'CONFIG', message: words })
    })
  }
})
