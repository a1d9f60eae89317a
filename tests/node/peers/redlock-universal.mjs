// redlock-universal 0.8 over ioredis. Its package asks for Node 22; this much works on Node 20.
//
// A lock object is made for one key and ttl; acquire gives a handle whose value is the token.
// retryAttempts 0 is one attempt; nodes that are refused throw, there is no null.
import { Redis } from 'ioredis'
import { IoredisAdapter, LockAcquisitionError, createRedlock } from 'redlock-universal'
import { serve } from './worker.mjs'

await serve('redlock-universal', (nodes) => {
  const adapters = nodes.map((node) => new IoredisAdapter(new Redis(node)))
  /** @type {Map<string, {lock: import('redlock-universal').Lock, handle: any}>} */
  const held = new Map()
  return {
    async acquire(resource, ttl) {
      const lock = createRedlock({ adapters, key: resource, ttl, retryAttempts: 0 })
      try {
        const handle = await lock.acquire()
        held.set(resource, { lock, handle })
        return handle.value
      } catch (error) {
        if (error instanceof LockAcquisitionError) return null
        throw error
      }
    },
    async extend(resource, ttl) {
      const { lock, handle } = /** @type {any} */ (held.get(resource))
      return lock.extend(handle, ttl)
    },
    async release(resource) {
      const { lock, handle } = /** @type {any} */ (held.get(resource))
      held.delete(resource)
      return lock.release(handle)
    },
  }
})
