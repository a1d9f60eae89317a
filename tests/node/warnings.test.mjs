// Tests warnings: they are events of the manager, or else warnings of the process.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { ConfigError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/** @typedef {import('./support/servers.mjs').Server} Server */
/** @typedef {import('quorlock').Warning} Warning */

const EVICTS = /: its maxmemory-policy volatile-ttl may throw out the keys of locks while they are/

describe('a warning', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Server} */
  let evicting
  before(async () => {
    const flags = ['--maxmemory', '100mb', '--maxmemory-policy', 'volatile-ttl']
    cluster = await startServers(1, { flags })
    ;[evicting] = /** @type {[Server]} */ (cluster.servers)
  })
  after(() => cluster.close())

  /** @param {Redlock} redlock */
  const lockAndRelease = async (redlock) => (await redlock.acquire('r', 5000)).release()

  it('tells of a server that may throw locks out, once', async () => {
    const redlock = new Redlock([evicting.url])
    /** @type {Warning[]} */
    const told = []
    redlock.on('warning', (warning) => told.push(warning))
    await lockAndRelease(redlock)
    await lockAndRelease(redlock)
    await eventually(() => told.length > 0)
    const [{ name, message, address }] = /** @type {[Warning]} */ (told)
    assert.deepEqual([name, address, told.length], ['may-evict', evicting.url, 1])
    assert.match(message, EVICTS)
    await redlock.quit()
  })

  it('is one of the process where nobody listens', async () => {
    /** @type {any[]} */
    const told = []
    process.once('warning', (warning) => told.push(warning))
    const redlock = new Redlock([evicting.url])
    await lockAndRelease(redlock)
    // What may still come keeps no process alive.
    await eventually(() => told.length > 0)
    const [warning] = told
    assert.deepEqual([warning.name, warning.code], ['QuorlockWarning', 'QUORLOCK_MAY_EVICT'])
    assert.match(warning.message, EVICTS)
    await redlock.quit()
  })

  it('tells of a node that stops taking part once, and when it is back', async () => {
    const servers = await cluster.start(3)
    const redlock = new Redlock(servers.map(({ url }) => url))
    /** @type {Warning[]} */
    const told = []
    redlock.on('warning', (warning) => told.push(warning))
    const [, second] = /** @type {[Server, Server]} */ (/** @type {unknown} */ (servers))
    const named = (/** @type {string} */ name) =>
      told.filter((warning) => warning.name === name && warning.address === second.url)
    await lockAndRelease(redlock)
    await eventually(() => redlock.nodes.every(({ state }) => state === 'healthy'))
    await second.kill()
    for (let turn = 0; turn < 10; turn += 1) await lockAndRelease(redlock)
    await eventually(() => named('node-down').length > 0)
    await lockAndRelease(redlock)
    await second.restart()
    await eventually(() => named('node-up').length > 0)
    assert.deepEqual([named('node-down').length, named('node-up').length], [1, 1])
    assert.match(named('node-down')[0]?.message ?? '', /it takes no part in locks/)
    await redlock.quit()
  })

  it('of the process tells of a node once, however many managers use it', async () => {
    const servers = await cluster.start(3)
    const [, second] = /** @type {[Server, Server]} */ (/** @type {unknown} */ (servers))
    const managers = Array.from({ length: 30 }, () => new Redlock(servers.map(({ url }) => url)))
    await Promise.all(managers.map((redlock, index) => redlock.isLocked(`r${index}`)))
    /** @type {string[]} */
    const told = []
    const note = (/** @type {any} */ { code, message }) => {
      if (message.startsWith(second.url)) told.push(code)
    }
    process.on('warning', note)
    await second.kill()
    await eventually(() => told.length > 0)
    await second.restart()
    const isBack = () => managers.every(({ nodes }) => nodes[1]?.state === 'quarantined')
    await eventually(isBack)
    await eventually(() => told.includes('QUORLOCK_NODE_UP'))
    process.off('warning', note)
    const names = ['QUORLOCK_NODE_DOWN', 'QUORLOCK_NODE_UP', 'QUORLOCK_QUARANTINED']
    assert.deepEqual(told.sort(), names)
    await Promise.all(managers.map((redlock) => redlock.close()))
  })

  it('of the process tells of an outage once, also if a manager sees it late and in another way', async () => {
    const servers = await cluster.start(3)
    const [, second] = /** @type {[Server, Server]} */ (/** @type {unknown} */ (servers))
    const managers = [1, 2].map(() => new Redlock(servers.map(({ url }) => url)))
    await Promise.all(managers.map(lockAndRelease))
    /** @type {string[]} */
    const told = []
    const note = (/** @type {any} */ { code, message }) => {
      if (message.startsWith(second.url)) told.push(code)
    }
    process.on('warning', note)
    let repeats = 0
    for (const redlock of /** @type {any[]} */ (managers)) {
      const { _warn } = redlock
      redlock._warn = (/** @type {any} */ notice) => {
        if (notice.isRepeat) repeats++
        // As the words of who cannot connect to it differ from those of who is connected.
        const message = notice.isRepeat ? `${notice.message}, or so` : notice.message
        _warn.call(redlock, { ...notice, message })
      }
    }
    await second.kill()
    await eventually(() => repeats === 1)
    await second.restart()
    await eventually(() => repeats === 2)
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    const outage = told.filter((code) => code !== 'QUORLOCK_QUARANTINED')
    assert.deepEqual(outage, ['QUORLOCK_NODE_DOWN', 'QUORLOCK_NODE_UP'])
    await Promise.all(managers.map((redlock) => redlock.close()))
  })

  it('of the process tells of the second outage of a node, also if another manager sees it', async () => {
    const [first, second] = [new Redlock(['memory://']), new Redlock(['memory://'])]
    /** @type {string[]} */
    const told = []
    const note = (/** @type {any} */ { code }) => void told.push(code)
    process.on('warning', note)
    const notice = { message: 'redis://gone: it takes no part', address: 'redis://gone' }
    for (const [redlock, name] of /** @type {[any, string][]} */ ([
      [first, 'node-down'],
      [second, 'node-down'],
      [first, 'node-up'],
      [second, 'node-down'],
      [first, 'node-down'],
    ]))
      redlock._warn({ name, ...notice })
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    const [down, up] = ['QUORLOCK_NODE_DOWN', 'QUORLOCK_NODE_UP']
    assert.deepEqual(told, [down, up, down])
  })

  it('of the process tells no other time of the same as news', async () => {
    const redlock = /** @type {any} */ (new Redlock(['memory://']))
    /** @type {string[]} */
    const told = []
    const note = (/** @type {any} */ { message }) => void told.push(message)
    process.on('warning', note)
    const address = 'redis://nowhere'
    for (const left of ['1.2 s', '39 ms', '10.1 s', '9.9 s'])
      redlock._warn({ name: 'quarantined', message: `held back for about ${left}`, address })
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    // Unless it was restarted meanwhile.
    assert.deepEqual(told, ['held back for about 1.2 s', 'held back for about 10.1 s'])
  })

  it('tells of a node that is held back, which its state shows', async () => {
    const servers = await cluster.start(3)
    const redlock = new Redlock(servers.map(({ url }) => url))
    await lockAndRelease(redlock)
    await eventually(() => redlock.nodes.every(({ state }) => state === 'healthy'))
    /** @type {Warning[]} */
    const told = []
    redlock.on('warning', (warning) => told.push(warning))
    const second = /** @type {Server} */ (servers[1])
    await second.kill()
    await second.restart()
    await eventually(() => redlock.nodes[1]?.state === 'quarantined')
    const { detail, quarantinedFor = 0 } = redlock.nodes[1] ?? {}
    assert.equal(detail, 'it was restarted and may have forgotten locks')
    assert.ok(quarantinedFor > 0 && quarantinedFor <= 10_200, `${quarantinedFor} ms`)
    assert.ok(!('quarantinedFor' in /** @type {object} */ (redlock.nodes[0])))
    // What may still come keeps no process alive.
    await eventually(() => told.length > 0)
    const [{ name, message, address }] = /** @type {[Warning]} */ (told)
    assert.deepEqual([name, address], ['quarantined', second.url])
    const words = `${second.url}: ${detail}; its votes do not count until those locks are over, for `
    assert.ok(message.startsWith(words), message)
    await eventually(() => redlock.nodes[1]?.state === 'healthy')
    await redlock.quit()
  })

  it('is not called for by a node that is declared durable', async () => {
    // As a managed service does, the server does not say how it writes to disk.
    const hidden = { appendonly: true, flags: ['--rename-command', 'CONFIG', ''] }
    const [durable] = /** @type {[Server]} */ (await cluster.start(1, hidden))
    const others = (await cluster.start(2)).map(({ url }) => url)
    /** @param {any} node */
    const stateAfterRestart = async (node) => {
      let state
      for (let restarts = 0; restarts < 2; restarts += 1) {
        await durable.kill()
        await durable.restart()
        const redlock = new Redlock([node, ...others])
        redlock.on('warning', () => {})
        await (await redlock.acquire('r', 10_000)).release()
        await eventually(() => redlock.nodes[0]?.state !== 'connecting')
        state = redlock.nodes[0]?.state
        await redlock.quit()
      }
      return state
    }
    const { host, port, url } = durable
    assert.equal(await stateAfterRestart({ host, port, durable: true }), 'healthy')
    assert.equal(await stateAfterRestart(`${url}?durable=true`), 'healthy')
    assert.equal(await stateAfterRestart({ host, port, durable: false }), 'quarantined')
    assert.equal(await stateAfterRestart(url), 'quarantined')
    const wrong = /** @type {any} */ ({ host, durable: 'yes' })
    assert.throws(() => new Redlock([wrong]), ConfigError)
  })
})
