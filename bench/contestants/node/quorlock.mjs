// Ours. Variants: `plain` (no fencing, no guards: what the others do), `using` (a block, renewed).
import { createRequire } from 'node:module'
import { Redlock } from '../../../bindings-node/index.mjs'
import { TTL, serve, urls, variant } from './worker.mjs'

const { version } = createRequire(import.meta.url)('../../../package.json')
const redlock = new Redlock(urls, {
  ...(variant === 'plain' ? { fencing: false, restartGuard: 'off', clockGuard: false } : {}),
  retryCount: -1,
})

/** A lock inside `using`: the block ends when it is released. */
function enter(resource) {
  return new Promise((resolve, reject) => {
    const block = { ended: undefined, end: undefined }
    block.ended = redlock.using([resource], TTL, () => {
      resolve(block)
      return new Promise((end) => (block.end = end))
    })
    block.ended.catch(reject)
  })
}

const inBlock = {
  acquire: enter,
  release: (block) => {
    block.end()
    return block.ended
  },
}
const bare = {
  acquire: (resource) => redlock.acquire([resource], TTL),
  hold: (resource) => redlock.acquire([resource], TTL, { autoExtend: true }),
  release: (lock) => lock.release(),
}

await serve(variant === 'using' ? inBlock : bare, version)
