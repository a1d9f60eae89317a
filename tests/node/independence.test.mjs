// Tests that nodes which are not independent of each other are refused, in words that name both.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { ConfigError, QuorumUnreachableError, Redlock } from 'quorlock'
import { startServers } from './support/servers.mjs'
import { eventually } from './support/wait.mjs'

/** @typedef {import('./support/servers.mjs').Server} Server */

const PATIENT = { timeout: 20_000, retryCount: -1 }
const SAME = 'are one and the same server, but a quorum needs servers that fail independently'

describe('independence', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  /** @type {Server} */
  let server
  /** @type {Server} */
  let other
  before(async () => {
    cluster = await startServers(2, { unix_socket: true })
    ;[server, other] = /** @type {[Server, Server]} */ (cluster.servers)
  })
  after(() => cluster.close())

  /**
   * A manager that has refused its nodes, and its error. On a busy machine a quorum may be found
   * well before the others have told who they are; then it is left to the next manager.
   * @param {string[]} nodes
   * @param {object} [settings]
   */
  const refused = async (nodes, settings) => {
    for (let attempt = 0; attempt < 10; attempt += 1) {
      const redlock = new Redlock(nodes, settings)
      try {
        await (await redlock.acquire('r', 5000, { timeout: 5000 })).release()
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error))
        assert.equal(error.code, 'CONFIG')
        return { redlock, message: error.message }
      }
      await redlock.quit()
    }
    throw new Error('the list of nodes was taken')
  }

  it('is refused where a server has two addresses', async () => {
    const proxy = await server.proxy()
    for (const address of [/** @type {string} */ (server.unixUrl), proxy.url]) {
      const { redlock, message } = await refused([server.url, other.url, address])
      assert.equal(message, `${server.url} and ${address} ${SAME}: name each once`)
      await assert.rejects(redlock.isLocked('r'), { message })
      await redlock.quit()
    }
  })

  it('is asked for with the guards off, too', async () => {
    const settings = { restartGuard: 'off', clockGuard: false }
    const nodes = [server.url, /** @type {string} */ (server.unixUrl)]
    const { redlock, message } = await refused(nodes, settings)
    assert.ok(message.includes(SAME))
    await redlock.quit()
  })

  it('is refused beside its master, until the replica is a master', async () => {
    await server.command('CONFIG', 'SET', 'repl-diskless-sync-delay', '0')
    const [replica] = /** @type {[Server]} */ (await cluster.start(1, { replica_of: server.index }))
    const { redlock, message } = await refused([server.url, other.url, replica.url])
    assert.ok(message.startsWith(`${replica.url} is a replica of ${server.url}, but a quorum`))
    await replica.command('REPLICAOF', 'NO', 'ONE')
    // Once the list is mended, it is not certain yet that the whole cluster is new.
    const isExpected = (/** @type {unknown} */ error) =>
      error instanceof ConfigError || error instanceof QuorumUnreachableError
    await eventually(
      () =>
        redlock.acquire('r', 5000, { retryCount: 0 }).then(
          (lock) => lock.release(),
          (error) => void assert.ok(isExpected(error), String(error)),
        ),
      20_000,
    )
    await redlock.quit()
  })

  it('leaves a lone replica to be the fault of its node', async () => {
    const [master] = /** @type {[Server]} */ (await cluster.start(1))
    const [replica] = /** @type {[Server]} */ (await cluster.start(1, { replica_of: master.index }))
    const redlock = new Redlock([server.url, other.url, replica.url])
    // Where one node is missing, it is not certain that the cluster is new.
    await (await redlock.acquire('r', 5000, PATIENT)).release()
    await eventually(() => redlock.nodes[2]?.state === 'down')
    assert.equal(
      redlock.nodes[2]?.detail,
      `${replica.url} is a replica of ${master.address} and takes no writes: give the address of its master`,
    )
    await redlock.quit()
  })

  it('is refused for two members of one Redis Cluster', async () => {
    const options = { flags: ['--cluster-enabled', 'yes'] }
    const members = /** @type {[Server, Server]} */ (await cluster.start(2, options))
    const [one, two] = members
    await one.command('CLUSTER', 'MEET', two.host, String(two.port))
    const known = async (/** @type {Server} */ member) => {
      const lines = String(await member.command('CLUSTER', 'NODES'))
      return lines.trim().split('\n').length === 2 && !lines.includes('handshake')
    }
    await eventually(async () => (await known(one)) && (await known(two)), 20_000)
    const { redlock, message } = await refused([one.url, two.url])
    assert.ok(message.startsWith(`${one.url} and ${two.url} belong to one Redis Cluster`))
    await redlock.quit()
  })

  it('cannot be told for a user who may not ask', async () => {
    const users = { app: 'on >secret ~* &* +@all -info' }
    const servers = await cluster.start(2, { users })
    const redlock = new Redlock(servers.map(({ address }) => `redis://app:secret@${address}`))
    // Nor where servers cannot be told from each other.
    const lock = await redlock.acquire('r', 5000, PATIENT)
    assert.deepEqual(
      lock.votes.map(({ outcome }) => outcome),
      ['granted', 'granted'],
    )
    await lock.release()
    await redlock.quit()
  })
})
