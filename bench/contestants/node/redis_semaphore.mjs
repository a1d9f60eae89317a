// redis-semaphore's RedlockMutex over ioredis, which renews by a timer for each lock.
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { TTL, ports, serve, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const { RedlockMutex } = require('redis-semaphore')

const clients = ports.map((port) => new Redis(port, '127.0.0.1'))

async function acquire(resource) {
  const mutex = new RedlockMutex(clients, resource, { lockTimeout: TTL })
  await mutex.acquire()
  return mutex
}

await serve(
  { acquire, hold: acquire, release: (mutex) => mutex.release() },
  versionOf('redis-semaphore'),
)
