// Starts three servers and a Redlock over them for the tests of one `describe`, and ends them after it.
import { after, before, beforeEach } from 'node:test'
import { Redlock } from 'quorlock'
import { startServers } from './servers.mjs'

/**
 * To be called inside a `describe`; every test begins with servers that are empty.
 * @param {(cluster: import('./servers.mjs').Cluster, redlock: Redlock) => void} use gets both, once
 */
export function withLocks(use) {
  /** @type {import('./servers.mjs').Cluster} */
  let cluster
  /** @type {Redlock} */
  let redlock
  before(async () => {
    cluster = await startServers(3)
    redlock = new Redlock(cluster.urls)
    use(cluster, redlock)
  })
  beforeEach(() => cluster.reset())
  after(async () => {
    await redlock.quit()
    await cluster.close()
  })
}
