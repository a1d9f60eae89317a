// node-redlock 4.2 over ioredis: old, and still much installed. `lock`, `unlock`, one resource.
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { serve } from './worker.mjs'

const require = createRequire(import.meta.url)
const Redlock = require('redlock4')

await serve('redlock4', (nodes) => {
  const redlock = new Redlock(
    nodes.map((node) => new Redis(node)),
    { retryCount: 0 },
  )
  redlock.on('clientError', () => {})
  /** @type {Map<string, any>} */
  const held = new Map()
  return {
    async acquire(resource, ttl) {
      try {
        const lock = await redlock.lock(resource, ttl)
        held.set(resource, lock)
        return lock.value
      } catch (error) {
        // One error for "held by another" and "nodes unreachable" alike.
        if (error instanceof Redlock.LockError) return null
        throw error
      }
    },
    async extend(resource, ttl) {
      held.set(resource, await held.get(resource).extend(ttl))
      return true
    },
    async release(resource) {
      const lock = held.get(resource)
      held.delete(resource)
      await lock.unlock()
      return true
    },
  }
})
