// redlock-universal over ioredis: a lock object is made for one key.
import { Redis } from 'ioredis'
import { IoredisAdapter, LockAcquisitionError, createRedlock } from 'redlock-universal'
import { TTL, ports, serve, versionOf } from './worker.mjs'

const adapters = ports.map((port) => new IoredisAdapter(new Redis(port, '127.0.0.1')))

await serve(
  {
    async acquire(resource) {
      const lock = createRedlock({ adapters, key: resource, ttl: TTL })
      try {
        return { lock, handle: await lock.acquire() }
      } catch (error) {
        if (error instanceof LockAcquisitionError) return undefined
        throw error
      }
    },
    release: ({ lock, handle }) => lock.release(handle),
  },
  versionOf('redlock-universal'),
)
