// Tests that other libraries and this one exclude each other by the same keys, from Node.
// tests/python/test_interop.py tests all of them, both ways; here are races of two event loops, and what only
// Node tells.
import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Redlock, ResourceLockedError } from 'quorlock'
import { startPeer } from './support/peers.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

describe('on the same keys', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  before(async () => {
    cluster = await startServers(3)
    redlock = new Redlock(cluster.urls, { retryCount: 0 })
  })
  beforeEach(() => cluster.reset())
  after(async () => {
    await redlock.quit()
    await cluster.close()
  })

  it('redlock-py is kept out while we hold the lock, and keeps us out of any set with its own', async () => {
    const peer = await startPeer('redlock-py', cluster.addresses)
    try {
      const lock = await redlock.acquire('shared', 10_000)
      assert.equal(await peer.acquire('shared', 10_000), null)
      await lock.release()
      await eventually(async () => (await peer.acquire('shared', 10_000)) !== null)
      await assert.rejects(redlock.acquire(['free', 'shared'], 10_000), ResourceLockedError)
      assert.equal(await peer.release('shared'), true)
      await (await redlock.acquire(['free', 'shared'], 10_000)).release()
    } finally {
      peer.close()
    }
  })

  for (const name of ['node-redlock', 'node-redlock-4', 'redlock-universal']) {
    it(`${name}: no overlap in a race`, async () => {
      const peer = await startPeer(name, cluster.addresses)
      try {
        let won = 0
        for (let round = 0; round < 30; round += 1) {
          const [theirs, ours] = await Promise.all([
            peer.acquire('race', 10_000),
            redlock.acquire('race', 10_000).catch((error) => {
              assert.ok(error instanceof ResourceLockedError, error.stack)
              return undefined
            }),
          ])
          assert.ok(theirs === null || ours === undefined, 'both hold it')
          if (theirs !== null || ours !== undefined) won += 1
          if (theirs !== null) await peer.release('race')
          await ours?.release()
          await eventually(async () =>
            (await cluster.values('race')).every((value) => value === null),
          )
        }
        assert.ok(won > 0)
      } finally {
        peer.close()
      }
    })
  }

  it('a key that never expires is named, not waited for in silence', async () => {
    await Promise.all(cluster.servers.map((server) => server.command('SET', 'forever', 'someone')))
    const error = await redlock.acquire('forever', 1000).catch((caught) => caught)
    assert.ok(error instanceof ResourceLockedError)
    assert.match(error.message, /no ttl/)
    assert.ok(error.votes.some((/** @type {any} */ vote) => vote.freesIn === Infinity))
  })

  it('a key of another type in the way is named', async () => {
    await Promise.all(cluster.servers.map((server) => server.command('RPUSH', 'list', 'x')))
    const error = await redlock.acquire('list', 1000).catch((caught) => caught)
    assert.equal(error.code, 'QUORUM_UNREACHABLE')
    assert.ok(error.votes.some((/** @type {any} */ vote) => vote.error?.code === 'WRONG_TYPE'))
    assert.match(error.message, /type/)
  })
})
