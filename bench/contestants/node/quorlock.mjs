// Quorlock. Variants: `plain` (no fencing, no guards: what the others do), `using` (a block, renewed).
// Waits until it holds the lock, as the others are asked to: its own default is to give up after ten tries.
import { createRequire } from 'node:module'
import { Redlock } from '../../../bindings-node/index.mjs'
import { TTL, enter, leave, serve, urls, variant } from './worker.mjs'

const { version } = createRequire(import.meta.url)('../../../package.json')
const redlock = new Redlock(urls, {
  ...(variant === 'plain' ? { fencing: false, restartGuard: 'off', clockGuard: false } : {}),
  retryCount: -1,
})

const inBlock = {
  acquire: (resource) => enter((routine) => redlock.using([resource], TTL, routine)),
  release: leave,
}
const bare = {
  acquire: (resource) => redlock.acquire([resource], TTL),
  hold: (resource) => redlock.acquire([resource], TTL, { autoExtend: true }),
  release: (lock) => lock.release(),
}

await serve(variant === 'using' ? inBlock : bare, version)
