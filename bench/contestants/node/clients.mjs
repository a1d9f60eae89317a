// The client connections that all other Node libraries lock with; ours does not load them.
import { Redis } from 'ioredis'
import { ports, variant } from './worker.mjs'

/** Of a peer over ioredis. A hung node is given the 250 ms that ours gives it. */
const TUNED = { commandTimeout: 250, maxRetriesPerRequest: 0, enableAutoPipelining: true }

/** A client for each node; with ioredis' own defaults unless the variant is `tuned`. */
export const clients = () =>
  ports.map((port) => {
    const client = new Redis(port, '127.0.0.1', variant === 'tuned' ? TUNED : {})
    client.on('error', () => {}) // a node that is down is what some workloads are about
    return client
  })
