// Tests that nothing that is printed contains a password: objects, statistics, errors of every kind,
// warnings.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { format, inspect } from 'node:util'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { LeaseLostError, LockError, LockNotHeldError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const SECRET = 'tops3cret'

/** Every way in which people print things. @param {any} value */
function prints(value) {
  return [
    inspect(value),
    inspect(value, { depth: Infinity, getters: true, maxArrayLength: null }),
    inspect(value, { showHidden: true, depth: Infinity, maxArrayLength: null }),
    inspect(value, { showHidden: true, depth: Infinity, customInspect: false }),
    format('%s %o %O %j', value, value, value, value),
    JSON.stringify(value, null, 1) ?? '',
    `${typeof value === 'symbol' ? '' : value}`,
    String(value?.stack),
    JSON.stringify(Object.getOwnPropertyDescriptors(value ?? {})),
    inspect({ ...value }, { showHidden: true, depth: Infinity, customInspect: false }),
  ]
}

/** @param {unknown} value @param {string} what */
function tellsNoSecret(value, what) {
  for (const text of prints(value)) assert.ok(!text.includes(SECRET), `${what}: ${text}`)
}

describe('a password', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {string[]} */
  let urls
  /** @type {[string, (url: string) => any][]} */
  const kinds = [
    ['a URL', (url) => url],
    ['a URL object', (url) => new URL(url)],
    ['a query', (url) => `redis://${new URL(url).host}?password=${new URL(url).password}`],
    [
      'an object of parts',
      (url) => ({
        host: '127.0.0.1',
        port: Number(new URL(url).port),
        password: new URL(url).password,
      }),
    ],
    ['an object with a URL', (url) => ({ url })],
    ['an ioredis client', (url) => new Redis(url, { lazyConnect: true })],
    ['a node-redis client', (url) => createClient({ url })],
  ]
  before(async () => {
    cluster = await startServers(3, { password: SECRET })
    urls = cluster.urls
  })
  after(() => cluster.close())

  for (const [name, make] of kinds) {
    it(`is not printed: ${name}`, async () => {
      const redlock = new Redlock(
        urls.map((url) => make(url)),
        { retryCount: 1, retryDelay: 1 },
      )
      /** @type {unknown[]} */
      const events = []
      redlock.on('error', (error) => events.push(error))
      redlock.on('warning', (warning) => events.push(warning))
      tellsNoSecret(redlock, 'the manager before it connects')
      const lock = await redlock.acquire('r', 20_000)
      const held = await redlock.acquire('r', 1000).catch((error) => error)
      assert.equal(held.code, 'LOCK_NOT_ACQUIRED')
      const extended = await lock.extend(20_000)
      const wrong = await redlock.acquire('r', 1000, { retryCount: -5 }).catch((error) => error)
      const released = await lock.release()
      const again = await lock.release().catch((error) => error)
      assert.ok(again instanceof LockNotHeldError)
      const short = await redlock.acquire('s', 30)
      await eventually(() => !short.isValid)
      const lost = await short.extend(1000).catch((error) => error)
      assert.ok(lost instanceof LeaseLostError)
      const told = {
        ...{ redlock, lock, extended, held, wrong, released, again, short, lost },
        ...{ nodes: redlock.nodes, votes: lock.votes, lostVotes: held.votes },
        ...{ stats: await Promise.all([...lock.attempts, ...held.attempts]), events },
        ...{ settings: redlock.settings, node: redlock.nodes[0], vote: lock.votes[0] },
        releaseStats: await Promise.all(released.attempts),
      }
      for (const [what, value] of Object.entries(told)) tellsNoSecret(value, what)
      tellsNoSecret(told, 'all of it')
      // It can be read, and a client object is the one that was passed.
      const expected = name.endsWith('client') ? [...redlock.clients][0] : redlock.nodes[0]?.address
      assert.equal(lock.votes[0]?.client, expected)
      assert.equal(redlock.nodes[0]?.client, expected)
      for (const shown of redlock.clients)
        if (!name.endsWith('client')) tellsNoSecret(shown, 'a shown client')
      await redlock.close()
      tellsNoSecret(await redlock.acquire('r', 1000).catch((error) => error), 'closed')
    })
  }

  it('is not printed where it is wrong, or nobody is there', async () => {
    const bad = urls.map((url) => url.replace(SECRET, `${SECRET}x`))
    for (const [, make] of kinds) {
      for (const url of [bad[0], `redis://:${SECRET}@127.0.0.1:1`]) {
        const redlock = new Redlock([make(String(url))], { retryCount: 0 })
        /** @type {unknown[]} */
        const events = []
        redlock.on('error', (error) => events.push(error))
        redlock.on('warning', (warning) => events.push(warning))
        const error = await redlock.acquire('r', 1000).catch((thrown) => thrown)
        assert.ok(error instanceof LockError)
        tellsNoSecret(error, 'an error')
        tellsNoSecret(events, 'events')
        tellsNoSecret(redlock.nodes, 'nodes')
        await redlock.close()
      }
    }
  })

  it('is not printed by what is wrong at construction', () => {
    /** @type {any[]} */
    const wrong = [
      [`http://u:${SECRET}@a`],
      [`redis://u:${SECRET}@a:x`],
      [`redis://:${SECRET}@a/x?password=${SECRET}`],
      [`redis://a?passwrd=${SECRET}`],
      [`redis://:${SECRET}@a`, `redis://:${SECRET}@a`],
      [{ host: 'a b', password: SECRET }],
      [{ host: 'a', passwrd: SECRET }],
      [{ url: `redis://:${SECRET}@a`, password: SECRET }],
      [{ socket: `redis://:${SECRET}@a` }],
      [{ host: 'a', sentinels: [{ password: SECRET }] }],
      [{ host: 'a', password: { word: SECRET } }],
    ]
    for (const nodes of wrong) {
      try {
        new Redlock(nodes)
        assert.fail('taken')
      } catch (error) {
        assert.ok(error instanceof LockError, String(error))
        tellsNoSecret(error, 'a refusal')
      }
    }
  })
})
