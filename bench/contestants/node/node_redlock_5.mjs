// node-redlock 5.0.0-beta.2 over ioredis: what most Node code locks with. Variants: `tuned`, `using`.
import { createRequire } from 'node:module'
import { clients } from './clients.mjs'
import { TTL, enter, leave, serve, variant, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const { default: Redlock, ExecutionError } = require('redlock')

const redlock = new Redlock(clients())
redlock.on('error', () => {}) // it emits every refusal here, and an unheard one ends the process

const inBlock = (resource) => enter((routine) => redlock.using([resource], TTL, routine))

/** Undefined if it gave up. */
async function acquire(resource) {
  try {
    return await (variant === 'using' ? inBlock(resource) : redlock.acquire([resource], TTL))
  } catch (error) {
    if (error instanceof ExecutionError) return undefined
    throw error
  }
}

await serve(
  {
    acquire,
    hold: inBlock,
    release: (held) => (held.end ? leave(held) : held.release()),
  },
  versionOf('redlock'),
)
