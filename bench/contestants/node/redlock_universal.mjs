// redlock-universal over ioredis: a lock object is made for one key. Variants: `tuned`, `using`.
import { IoredisAdapter, LockAcquisitionError, createRedlock } from 'redlock-universal'
import { clients } from './clients.mjs'
import { TTL, enter, leave, serve, variant, versionOf } from './worker.mjs'

const adapters = clients().map((client) => new IoredisAdapter(client))

/** Undefined if it gave up. */
async function acquire(resource) {
  const lock = createRedlock({ adapters, key: resource, ttl: TTL })
  try {
    if (variant === 'using') return await enter((routine) => lock.using(routine))
    return { lock, handle: await lock.acquire() }
  } catch (error) {
    if (error instanceof LockAcquisitionError) return undefined
    throw error
  }
}

await serve(
  {
    acquire,
    release: (held) => (held.end ? leave(held) : held.lock.release(held.handle)),
  },
  versionOf('redlock-universal'),
)
