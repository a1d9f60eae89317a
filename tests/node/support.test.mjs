// Tests the test harness itself, as the Node tests use it: a test that passes on a broken harness proves
// nothing.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { readFileSync } from 'node:fs'
import { after, before, beforeEach, describe, it } from 'node:test'
import { Redis } from 'ioredis'
import { startPeer } from './support/peers.mjs'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

describe('servers', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => {
    cluster = await startServers(3)
  })
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  const first = () => /** @type {import('./support/servers.mjs').Server} */ (cluster.servers[0])

  it('start, answer and are independent', async () => {
    await first().command('SET', 'a', 1, 'PX', 60_000)
    assert.deepEqual(await cluster.values('a'), ['1', null, null])
    const left = (await first().keys())['a'] ?? 0
    assert.ok(left > 50_000 && left <= 60_000)
    assert.equal(cluster.urls.length, 3)
  })

  it('pause, resume, die and come back', async () => {
    const server = first()
    await server.pause()
    await assert.rejects(ping(server.port, 100), /time/)
    await server.resume()
    assert.equal(await ping(server.port), '+PONG\r\n')
    const { pid } = server
    await server.kill()
    await assert.rejects(ping(server.port), /ECONNREFUSED/)
    await server.restart()
    assert.equal(await ping(server.port), '+PONG\r\n')
    assert.notEqual(server.pid, pid)
  })

  it('take options', async () => {
    const [server] = await cluster.start(1, { password: 'p w', unix_socket: true })
    assert.ok(server)
    assert.match(server.url, /^redis:\/\/:p%20w@127\.0\.0\.1:\d+$/)
    assert.equal(await server.command('PING'), 'PONG')
    assert.equal(await ping(/** @type {string} */ (server.unixUrl).slice('unix://'.length)), NOAUTH)
    cluster.servers.pop()
  })

  it('tell what was wrong', async () => {
    await assert.rejects(first().command('GET'), { name: 'ReplyError', message: /arguments/ })
  })

  it('sit behind a proxy that swallows one reply', async () => {
    const proxy = await first().proxy()
    const client = new Redis(proxy.url, { maxRetriesPerRequest: 0, retryStrategy: null })
    client.on('error', () => {})
    const swallowed = await proxy.swallowReply('key-two')
    assert.equal(await client.set('one', 1), 'OK')
    assert.equal(await swallowed.came(), false)
    await assert.rejects(client.set('key-two', 2))
    await swallowed.wait()
    assert.equal(await first().command('GET', 'key-two'), '2')
    assert.ok((await proxy.connections()) >= 1)
    client.disconnect()
    await proxy.close()
  })

  it('sit behind a proxy that delays, stalls and refuses', async () => {
    const proxy = await first().proxy()
    await proxy.delay(50)
    const start = performance.now()
    assert.equal(await ping(proxy.port), '+PONG\r\n')
    assert.ok(performance.now() - start >= 99)
    await proxy.heal()
    await proxy.stall()
    await assert.rejects(ping(proxy.port, 100), /time/)
    await proxy.refuse()
    await assert.rejects(ping(proxy.port), /ECONNREFUSED/)
    await proxy.heal()
    assert.equal(await ping(proxy.port), '+PONG\r\n')
    const never = await proxy.expect('nobody sends this')
    await assert.rejects(never.wait(10), { name: 'TimeoutError' })
    await proxy.close()
  })

  it('speak TLS through a proxy', async () => {
    const proxy = await first().proxy({ tls: true })
    assert.match(proxy.url, /^rediss:/)
    const { ca } = await cluster.certificates()
    const answer = await new Promise((resolve, reject) => {
      const socket = connectTls({ port: proxy.port, host: '127.0.0.1', ca: readFileSync(ca) })
      socket
        .once('error', reject)
        .once('data', (data) => resolve(String(data)))
        .write(PING)
      socket.once('data', () => socket.destroy())
    })
    assert.equal(answer, '+PONG\r\n')
    await proxy.close()
  })

  it('are taken by peers of both languages, which exclude each other', async () => {
    const python = await startPeer('redlock-py', cluster.addresses)
    const node = await startPeer('redlock-universal', cluster.addresses)
    try {
      assert.ok(await python.acquire('a'))
      assert.equal(await node.acquire('a'), null)
      await python.release('a')
      assert.ok(await node.acquire('a'))
      assert.equal(await python.acquire('a'), null)
    } finally {
      python.close()
      node.close()
    }
  })
})

it('servers that do not start are told, also to a process that does nothing else', async () => {
  const program = `import { startServers } from './tests/node/support/servers.mjs'
    const told = (error) => console.log(error.name, error.message)
    await startServers(1, { flags: ['--no-such-flag', '1'] }).catch(told)`
  const root = new URL('../../', import.meta.url)
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let output = ''
  child.stdout.on('data', (data) => (output += data))
  const code = await new Promise((resolve) => child.once('close', resolve))
  assert.match(output, /^RuntimeError server does not start:[^]*no-such-flag/)
  assert.equal(code, 0)
})

it('a harness that has ended answers no question', async () => {
  const cluster = await startServers(1)
  const [server] = cluster.servers
  await cluster.close()
  await assert.rejects(async () => server?.command('PING'), /the harness process ended/)
})

it('servers do not outlive the test, nor hold its process open', async () => {
  const program = `import { startServers } from './tests/node/support/servers.mjs'
    const cluster = await startServers(1)
    await cluster.servers[0].command('PING')
    console.log(cluster.servers[0].port)`
  const root = new URL('../../', import.meta.url)
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { cwd: root })
  let output = ''
  child.stdout.on('data', (data) => (output += data))
  const code = await new Promise((resolve) => child.once('exit', resolve))
  assert.equal(code, 0)
  const gone = () =>
    ping(Number(output)).then(
      () => false,
      (error) => error.code === 'ECONNREFUSED',
    )
  await eventually(gone)
})

const PING = '*1\r\n$4\r\nPING\r\n'
const NOAUTH = '-NOAUTH Authentication required.\r\n'

/**
 * @param {number | string} where port or path of a unix socket
 * @param {number} [timeout] milliseconds
 * @returns {Promise<string>}
 */
function ping(where, timeout = 5000) {
  return new Promise((resolve, reject) => {
    const options = typeof where === 'number' ? { port: where, host: '127.0.0.1' } : { path: where }
    const socket = connect(options, () => socket.write(PING))
    const fail = (/** @type {Error} */ error) => {
      socket.destroy()
      reject(error)
    }
    socket.setTimeout(timeout, () => fail(new Error('no answer in time')))
    socket.once('error', fail).once('close', () => fail(new Error('closed')))
    socket.once('data', (data) => {
      resolve(String(data))
      socket.destroy()
    })
  })
}
