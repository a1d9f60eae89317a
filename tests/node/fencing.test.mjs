// Tests that a holder which paused for longer than its lease cannot write.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Redis } from 'ioredis'
import { ConfigError, FencedRedis, LockError, StaleTokenError } from 'quorlock'
import { IOREDIS, NODE_REDIS } from './support/clients.mjs'
import { withLocks } from './support/locks.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const FENCE = 'fence:invoice:42'

/** @type {[string, (url: string) => any][]} */
const CLIENTS = [
  ...IOREDIS,
  .../** @type {typeof IOREDIS} */ (
    NODE_REDIS.map(([name, { createClient }]) => [
      name,
      async (url) => {
        const client = createClient({ url })
        await client.connect()
        return client
      },
    ])
  ),
]

describe('a fence', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {import('quorlock').Redlock} */
  let redlock
  withLocks((servers, locks) => ([cluster, redlock] = [servers, locks]))

  for (const [name, connect] of CLIENTS)
    it(`refuses a paused holder with ${name}`, async () => {
      const client = await connect(String(cluster.urls[0]))
      try {
        const fence = new FencedRedis(client, FENCE)
        const paused = await redlock.acquire('invoice:42', 200)
        await fence.set('state:42', 'by the first', paused.fencingToken)
        await eventually(() => !paused.isValid)
        const current = await redlock.acquire('invoice:42', 30_000, { retryCount: -1 })
        await fence.set('state:42', 'by the second', current.fencingToken)
        await assert.rejects(fence.set('state:42', 'twice', paused.fencingToken), (error) => {
          assert.ok(error instanceof StaleTokenError && error instanceof LockError)
          assert.deepEqual([error.name, error.code], ['StaleTokenError', 'STALE_TOKEN'])
          assert.deepEqual(error.resources, [FENCE])
          assert.equal(error.token, paused.fencingToken)
          assert.equal(error.highest, current.fencingToken)
          return true
        })
        assert.equal(await client.get('state:42'), 'by the second')
        assert.equal(await fence.write(current.fencingToken, 'INCRBY', 'paid', 2), 2)
        assert.equal(await fence.write(current.fencingToken, 'GET', 'none'), null)
        await current.release()
      } finally {
        await client.disconnect()
      }
    })

  it('takes a client of node-redis 4 in legacy mode', async () => {
    const [, { createClient }] = /** @type {[string, any]} */ (NODE_REDIS[0])
    const client = createClient({ url: String(cluster.urls[0]), legacyMode: true })
    await client.connect()
    const fence = new FencedRedis(client, FENCE)
    await fence.set('state:42', 'new', 18)
    await assert.rejects(fence.set('state:42', 'old', 17), StaleTokenError)
    assert.equal(await client.v4.get('state:42'), 'new')
    await client.disconnect()
  })

  it('takes the clients of a Redis Cluster', async () => {
    const flags = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1']
    const member = await startServers(1, { flags })
    const { port, url } = /** @type {import('./support/servers.mjs').Server} */ (member.servers[0])
    const admin = new Redis(url)
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383)
    await eventually(async () =>
      /cluster_state:ok/.test(String(await admin.call('CLUSTER', 'INFO'))),
    )
    admin.disconnect()
    const clients = [['ioredis', new Redis.Cluster([{ host: '127.0.0.1', port }])]]
    for (const [name, { createCluster }] of NODE_REDIS) {
      const client = createCluster({ rootNodes: [{ url }] })
      await client.connect()
      clients.push([name, client])
    }
    for (const [name, client] of clients) {
      const fence = new FencedRedis(client, `fence:{${name}}`)
      await fence.set(`state:{${name}}`, 'new', 18)
      await assert.rejects(fence.set(`state:{${name}}`, 'old', 17), StaleTokenError, name)
      assert.equal(await client.get(`state:{${name}}`), 'new', name)
      await client.disconnect()
    }
    await member.close()
  })

  it('refuses what is no token, client or command', async () => {
    const client = new Redis(String(cluster.urls[0]), { lazyConnect: true })
    const fence = new FencedRedis(client, FENCE)
    for (const token of /** @type {any[]} */ ([undefined, '17', -1, 1.5, 2 ** 53]))
      await assert.rejects(fence.set('a', 1, token), ConfigError)
    await assert.rejects(fence.write(1), ConfigError)
    for (const word of /** @type {any[]} */ ([null, undefined, {}, ['x']]))
      await assert.rejects(fence.set('a', word, 1), /a word of a command must be/)
    await assert.rejects(fence.set(FENCE, 'x', 1), /keeps the fence's tokens/)
    await assert.rejects(fence.write(1, 'DEL', 'other', FENCE), /keeps the fence's tokens/)
    for (const wrong of /** @type {any[]} */ ([null, 'redis://a', {}, client.pipeline()]))
      assert.throws(() => new FencedRedis(wrong, FENCE), ConfigError)
    assert.throws(() => new FencedRedis(client, ''), ConfigError)
    const prefixed = new Redis({ lazyConnect: true, keyPrefix: 'app:' })
    assert.throws(() => new FencedRedis(prefixed, FENCE), /keyPrefix/)
    for (const each of [client, prefixed]) each.disconnect()
  })
})
