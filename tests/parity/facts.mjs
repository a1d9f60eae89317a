// Prints the names and defaults of the Node package as one line of JSON for test_node.py. Compares nothing.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import * as quorlock from 'quorlock'

const { native } = createRequire(import.meta.url)('../../bindings-node/dist/native.js')
const { LockError, Redlock, defaultSettings } = quorlock
const nodes = ['memory://a', 'memory://b', 'memory://c']
const down = ['redis://127.0.0.1:1']

/** The error with which a call ends, in the words that both languages share. */
async function caught(/** @type {() => unknown} */ call) {
  try {
    await call()
  } catch (error) {
    if (error instanceof LockError) return { code: error.code, class: error.constructor.name }
    throw error
  }
  throw new Error('it did not fail')
}

async function errors() {
  const redlock = new Redlock(nodes, { retryCount: 0 })
  const held = await redlock.acquire('held', 60_000)
  const over = await redlock.acquire('over', 60)
  while (over.isValid) await new Promise((resolve) => setTimeout(resolve, 5))
  const released = await redlock.acquire('released', 60_000)
  await released.release()
  const closed = new Redlock(nodes)
  await closed.quit()
  const wait = { timeout: 30, retryDelay: 5, retryJitter: 0 }
  const told = {
    held: await caught(() => redlock.acquire('held', 1000)),
    waited: await caught(() => redlock.acquire('held', 1000, wait)),
    unreachable: await caught(() => new Redlock(down, { retryCount: 0 }).acquire('r', 1000)),
    lost: await caught(() => over.release()),
    released: await caught(() => released.extend(1000)),
    setting: await caught(() => new Redlock(nodes, { driftFactor: 2 })),
    closed: await caught(() => closed.acquire('r', 1000)),
  }
  await held.release()
  return told
}

/** Own and inherited names, without those of Object and EventEmitter. */
function members(/** @type {Function} */ kind) {
  return Object.getOwnPropertyNames(kind.prototype).filter((name) => !name.startsWith('_'))
}

const redlock = new Redlock(nodes)
const lock = await redlock.acquire('facts', 5000)
console.log(
  JSON.stringify({
    defaults: Object.fromEntries(
      native.defaults().map((/** @type {any} */ { name, value }) => [name, value ?? null]),
    ),
    meanings: Object.fromEntries(
      native.defaults().map((/** @type {any} */ { name, meaning }) => [name, meaning]),
    ),
    shown: defaultSettings,
    errors: await errors(),
    lock: [...new Set([...members(quorlock.Lock), ...Object.keys(lock)])],
    redlock: members(Redlock),
    node: Object.keys(redlock.nodes[0] ?? {}),
    vote: Object.keys(lock.votes[0] ?? {}),
    validityOf5000: lock.validity,
    version: JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
      .version,
  }),
)
await lock.release()
