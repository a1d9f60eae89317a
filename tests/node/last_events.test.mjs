// Tests that events are told that happened before the end of a Redlock or of the process.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Redlock } from 'quorlock'
import { withLocks } from './support/locks.mjs'
import { run } from './support/program.mjs'
import { eventually } from './support/wait.mjs'

const HEAD = `
  function make() {
    const redlock = new Redlock(urls)
    for (const name of ['acquired', 'released', 'lost']) redlock.on(name, () => console.log(name))
    return redlock
  }
`

/** @type {[string, string][]} */
const ENDS = [
  ['close()', 'const r = make(); await (await r.acquire("r", 5000)).release(); await r.close()'],
  ['quit()', 'const r = make(); await (await r.acquire("r", 5000)).release(); await r.quit()'],
  ['a natural end', 'await (await make().acquire("r", 5000)).release()'],
  ['a natural end after using()', 'await make().using("r", 5000, async () => {})'],
]

/** Forgets each Redlock as soon as its lock is released. */
const FORGET = `
  async function use(name) {
    const lock = await make().acquire(name, 5000)
    await lock.release()
  }
  for (let number = 0; number < 20; number += 1) {
    await use('r' + number)
    globalThis.gc()
  }
`

/**
 * Runs a program to its end; resolves with the lines that it prints.
 * @param {string} code
 * @param {string[]} nodes
 * @param {string[]} flags
 */
async function lines(code, nodes, flags = []) {
  const { output, errors, status } = await run(HEAD + code, nodes, flags)
  assert.deepEqual([status, errors], [0, ''])
  return output.split('\n').slice(0, -1)
}

describe('the last events', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  withLocks((servers) => (cluster = servers))

  for (const [end, code] of ENDS)
    it(`are told before ${end}`, async () => {
      for (let round = 0; round < 8; round += 1)
        assert.deepEqual(await lines(code, cluster.urls), ['acquired', 'released'])
    })

  it('are told of a Redlock that nobody keeps', async () => {
    const told = await lines(FORGET, cluster.urls, ['--expose-gc'])
    assert.deepEqual(told, Array(20).fill(['acquired', 'released']).flat())
  })

  it('are told when close() has resolved', async () => {
    for (let round = 0; round < 20; round += 1) {
      const redlock = new Redlock(cluster.urls)
      /** @type {string[]} */
      const told = []
      redlock.on('released', ({ name }) => told.push(name))
      const locks = await Promise.all(['a', 'b', 'c'].map((name) => redlock.acquire(name, 5000)))
      const releases = locks.map((lock) => lock.release())
      await Promise.all(releases)
      await redlock.close()
      assert.equal(told.length, 3)
      await redlock.close()
    }
  })

  it('are told to listeners while others come and go', async () => {
    const code = `
      const r = make()
      const listener = () => {}
      for (let number = 0; number < 50; number += 1) {
        const lock = await r.acquire('r', 5000)
        r.on('extended', listener)
        await lock.release()
        r.off('extended', listener)
      }
    `
    const told = await lines(code, cluster.urls)
    assert.deepEqual(told, Array(50).fill(['acquired', 'released']).flat())
  })

  it('keep no process alive whose listeners are removed', async () => {
    const code = `
      const r = make()
      const lock = await r.acquire('r', 5000)
      const release = lock.release()
      r.removeAllListeners()
      await release
      r.removeAllListeners()
      const closed = r.close()
      make().close()
    `
    await lines(code, cluster.urls)
  })

  it('are told although a listener closes the Redlock', async () => {
    const redlock = new Redlock(cluster.urls)
    let closed = false
    redlock.on('released', () => {
      void redlock.close().then(() => (closed = true))
    })
    await (await redlock.acquire('r', 5000)).release()
    await eventually(() => closed)
  })
})
