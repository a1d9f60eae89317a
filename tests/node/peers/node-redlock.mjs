// node-redlock 5.0.0-beta.2 over ioredis: what most Node code locks with today.
//
// Its import condition has no default export under Node's ESM rules on every loader, so it is
// required. `using` is left out: tests need acquire and release apart. retryCount 0 is one attempt.
// A refused acquire is an ExecutionError whose attempts hold ResourceLockedErrors.
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { serve } from './worker.mjs'

const require = createRequire(import.meta.url)
const { default: Redlock, ExecutionError } = require('redlock')

await serve('redlock', (nodes) => {
  const redlock = new Redlock(
    nodes.map((node) => new Redis(node)),
    { retryCount: 0 },
  )
  redlock.on('error', () => {}) // it emits every refusal here, and an unheard one ends the process
  /** @type {Map<string, any>} */
  const held = new Map()
  return {
    async acquire(resource, ttl) {
      try {
        const lock = await redlock.acquire([resource], ttl)
        held.set(resource, lock)
        return lock.value
      } catch (error) {
        if (error instanceof ExecutionError) return null
        throw error
      }
    },
    async extend(resource, ttl) {
      // It gives a new object and leaves the old one without validity.
      held.set(resource, await held.get(resource).extend(ttl))
      return true
    },
    async release(resource) {
      const lock = held.get(resource)
      held.delete(resource)
      await lock.release()
      return true
    },
  }
})
