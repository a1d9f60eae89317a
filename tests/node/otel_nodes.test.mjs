// Tests what `quorlock/otel` shows of nodes, with the in-memory exporter of the real SDK.
import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { Redlock } from 'quorlock'
import { instrument } from 'quorlock/otel'
import { makeMeter } from './support/meters.mjs'
import { startServers } from './support/servers.mjs'

describe('quorlock/otel on nodes', () => {
  const { meter, points, meters } = makeMeter()
  after(async () => meters.shutdown())

  it('names a node by the address and port of its server', async () => {
    const lists = [
      [
        'redis://127.0.0.1:1/3?key_prefix=a:',
        'rediss://user:pass@[::1]:2',
        'unix:///tmp/none.sock?db=2',
      ],
      ['redis://127.0.0.1:1/4'],
      ['redis://localhost', 'memory://x'],
    ]
    const managers = lists.map((nodes) => new Redlock(nodes))
    const stops = managers.map((redlock) => instrument(redlock, { meter }))
    for (const name of ['quorlock.node.state', 'quorlock.node.timeouts']) {
      const own = (await points(name)).map(({ attributes }) => attributes)
      const shown = own.filter((it) => (it['quorlock.node.state'] ?? 'down') === 'down')
      const servers = shown.map((it) => [it['server.address'], it['server.port']])
      for (const server of [
        ['/tmp/none.sock', undefined],
        ['127.0.0.1', 1],
        ['::1', 2],
        ['localhost', 6379],
        ['memory://x', undefined],
      ])
        assert.equal(
          servers.filter((other) => isDeepStrictEqual(other, server)).length,
          1,
          `${server}`,
        )
    }
    for (const stop of stops) stop()
    for (const redlock of managers) await redlock.quit()
  })

  it('shows no nodes of a Redlock that is closed', async () => {
    const cluster = await startServers(3)
    const redlock = new Redlock(cluster.urls)
    const stop = instrument(redlock, { meter })
    try {
      await (await redlock.acquire('r', 5000)).release()
      const states = async () => {
        const all = await points('quorlock.node.state')
        const own = all.filter(({ attributes, value }) => {
          const server = `${attributes['server.address']}:${attributes['server.port']}`
          return value === 1 && cluster.addresses.includes(server)
        })
        return own.map(({ attributes }) => attributes['quorlock.node.state'])
      }
      assert.deepEqual(await states(), ['healthy', 'healthy', 'healthy'])
      assert.equal(redlock.isClosed, false)
      await redlock.close()
      assert.equal(redlock.isClosed, true)
      assert.deepEqual(await states(), [])
    } finally {
      await stop()
      await cluster.close()
    }
  })

  it('counts timeouts of nodes beyond the end of a Redlock', async () => {
    const cluster = await startServers(3)
    const managers = [0, 1].map(() => new Redlock(cluster.urls, { nodeTimeout: 100 }))
    const stops = managers.map((redlock) => instrument(redlock, { meter }))
    try {
      for (const redlock of managers) await (await redlock.acquire('r', 5000)).release()
      for (const server of cluster.servers.slice(0, 2)) await server.pause()
      for (const redlock of managers)
        await assert.rejects(redlock.acquire('r', 5000, { retryCount: 0 }))
      const counted = async () => {
        const of = (await points('quorlock.node.timeouts')).map(({ value }) => Number(value))
        return of.reduce((total, value) => total + value, 0)
      }
      const before = await counted()
      assert.ok(before >= 4, `${before}`)
      stops[0]?.()
      await managers[0]?.quit()
      assert.equal(await counted(), before, 'a counter never goes down')
    } finally {
      stops[1]?.()
      for (const server of cluster.servers.slice(0, 2)) await server.resume()
      await managers[1]?.quit()
      await cluster.close()
    }
  })
})
