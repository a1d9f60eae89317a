// What tests of client objects begin with: servers, clients of them, and Redlocks over the clients.
import { after, afterEach, beforeEach } from 'node:test'
import { Redlock } from 'quorlock'
import { startServers } from './servers.mjs'

/**
 * Three servers for the tests of a file. After each test they go on, and what it has made is closed: an open client keeps this
 * process alive. (quit() would not do: a client that is not connected refuses it, or tries to connect for ever.)
 */
export async function clientTestbed() {
  const cluster = await startServers(3)
  /** @type {any[]} */
  const clients = []
  /** @type {Redlock[]} */
  const redlocks = []
  beforeEach(() => cluster.reset())
  after(() => cluster.close())
  afterEach(async () => {
    await Promise.all(cluster.servers.map((server) => server.resume()))
    await Promise.all(redlocks.splice(0).map((redlock) => redlock.close()))
    await Promise.allSettled(clients.splice(0).map(async (client) => client.disconnect()))
  })

  /**
   * Makes a client for each address; they take the place of those that there are.
   * @param {(url: string, options?: any) => any} make
   */
  async function connect(make, urls = cluster.urls, options = {}) {
    const made = await Promise.all(urls.map((url) => make(url, options)))
    clients.splice(0, clients.length, ...made)
  }

  /**
   * A Redlock over the clients.
   * @param {import('quorlock').Settings | object} settings
   */
  function redlockOf(settings = {}) {
    const redlock = new Redlock(clients, settings)
    redlocks.push(redlock)
    return redlock
  }
  return { cluster, clients, redlocks, connect, redlockOf }
}
