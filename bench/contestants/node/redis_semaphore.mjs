// redis-semaphore's RedlockMutex over ioredis, which renews every lock by a timer of its own.
// Variants: `tuned`, and `once` without renewal.
import { createRequire } from 'node:module'
import { clients } from './clients.mjs'
import { TTL, serve, variant, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const { RedlockMutex } = require('redis-semaphore')

const nodes = clients()
const options = { lockTimeout: TTL, ...(variant === 'once' ? { refreshInterval: 0 } : {}) }

async function acquire(resource) {
  const mutex = new RedlockMutex(nodes, resource, options)
  await mutex.acquire()
  return mutex
}

await serve(
  { acquire, hold: acquire, release: (mutex) => mutex.release() },
  versionOf('redis-semaphore'),
)
