// node-redlock 4.2 over ioredis: old, and still much installed. Variant: `tuned`.
import { createRequire } from 'node:module'
import { clients } from './clients.mjs'
import { TTL, serve, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const Redlock = require('redlock4')

const redlock = new Redlock(clients())
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
