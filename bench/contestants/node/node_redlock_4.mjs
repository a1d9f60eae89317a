// node-redlock 4.2 over ioredis: old, and still much installed.
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { TTL, ports, serve, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const Redlock = require('redlock4')

const redlock = new Redlock(ports.map((port) => new Redis(port, '127.0.0.1')))
redlock.on('clientError', () => {})

await serve(
  {
    async acquire(resource) {
      try {
        return await redlock.lock(resource, TTL)
      } catch (error) {
        if (error instanceof Redlock.LockError) return undefined
        throw error
      }
    },
    release: (lock) => lock.unlock(),
  },
  versionOf('redlock4'),
)
