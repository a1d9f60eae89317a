// Tests that warnings are emitted when they happen, also while the program only holds a lock, and that they
// keep no process alive.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { after, before, describe, it } from 'node:test'
import { promisify } from 'node:util'
import { Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

const run = promisify(execFile)
const here = new URL('../../', import.meta.url)

describe('a warning of a server that was restarted', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => void (cluster = await startServers(3)))
  after(() => cluster.close())

  for (const [name, options] of /** @type {[string, object][]} */ ([
    ['a lock that extends itself', { autoExtend: true }],
    ['a lock that does not', { autoExtend: false }],
  ])) {
    it(`comes while ${name} is held`, async () => {
      await cluster.reset()
      const redlock = new Redlock(cluster.urls)
      /** @type {{address: string | undefined, at: number}[]} */
      const told = []
      redlock.on('warning', ({ name, address }) => {
        if (name === 'quarantined') told.push({ address, at: performance.now() })
      })
      const lock = await redlock.acquire('r', 60_000, options)
      for (const server of cluster.servers.slice(0, 2)) {
        await server.kill()
        await server.restart()
        const back = performance.now()
        // No operation of ours is under way, and none is begun.
        const heard = await eventually(
          () => told.find(({ address }) => address === server.url),
          5000,
        )
        // The time to connect again is in it; so is what else this machine has to do.
        assert.ok(heard.at - back < 2000, `${heard.at - back} ms after it was back`)
      }
      assert.equal(told.length, 2)
      assert.ok(lock.isValid)
      await lock.release().catch(() => {})
      await redlock.close()
    })
  }

  it('keeps no process alive, and comes not at its end', async () => {
    const [server] = await cluster.start(1, {
      flags: ['--maxmemory', '100mb', '--maxmemory-policy', 'volatile-ttl'],
    })
    // It evicts: there is a notice with the first connection. Nobody waits for it.
    const program = `
      import { Redlock } from 'quorlock'
      const redlock = new Redlock(['${server?.url}'])
      let isOver = false
      redlock.on('warning', () => console.log(isOver ? 'late' : 'told'))
      process.on('exit', () => { isOver = true })
      await (await redlock.acquire('r', 5000)).release()`
    const words = ['--input-type=module', '-e', program]
    const { stdout } = await run(process.execPath, words, { cwd: here, timeout: 20_000 })
    assert.ok(!stdout.includes('late'), stdout)
  })
})
