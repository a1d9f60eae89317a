// Drives a Node library: `node node.mjs LIBRARY HOST:PORT[/DB]...`; requests as in worker.py beside it.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { Redis } from 'ioredis'
import { IoredisAdapter, createRedlock } from 'redlock-universal'

const require = createRequire(import.meta.url)
const { default: Redlock } = require('redlock')

/** What the body of a block throws. */
class BodyError extends Error {
  name = 'BodyError'
}

const [name, ...nodes] = process.argv.slice(2)
const clients = nodes.map((node) => {
  const client = new Redis(`redis://${node}`)
  client.on('error', () => {}) // nodes that are down are what some rows are about
  return client
})

/** node-redlock 5, with its own defaults. */
function nodeRedlock() {
  const redlock = new Redlock(clients)
  redlock.on('error', () => {})
  return {
    acquire: (resource, ttl, once) =>
      redlock.acquire([resource], ttl, once ? { retryCount: 0 } : undefined),
    release: (lock) => lock.release(),
    validFor: (lock) => (lock.expiration - Date.now()) / 1000,
    using: (resource, ttl, routine) => redlock.using([resource], ttl, routine),
  }
}

/** redlock-universal, with its own defaults: a lock object is made for one key. */
function universal() {
  const adapters = clients.map((client) => new IoredisAdapter(client))
  const made = (resource, ttl, once) =>
    createRedlock({ adapters, key: resource, ttl, ...(once ? { retryAttempts: 0 } : {}) })
  return {
    async acquire(resource, ttl, once) {
      const lock = made(resource, ttl, once)
      return { lock, handle: await lock.acquire() }
    },
    release: ({ lock, handle }) => lock.release(handle),
    validFor: () => null,
    using: (resource, ttl, routine) => made(resource, ttl, false).using(routine),
  }
}

const locks = name === 'node-redlock 5' ? nodeRedlock() : universal()
const held = new Map()

const actions = {
  async acquire({ resource, ttl = 20_000, once = false }) {
    const start = performance.now()
    try {
      const lock = await locks.acquire(resource, ttl, once)
      held.set(resource, lock)
      return { held: true, raised: null, valid_for: locks.validFor(lock), seconds: since(start) }
    } catch (error) {
      // Both say in this way that another holds it, or that too few nodes answered.
      const usual = ['ExecutionError', 'LockAcquisitionError'].includes(error.name)
      return { held: false, raised: usual ? null : error.name, seconds: since(start) }
    }
  },
  async release({ resource }) {
    const start = performance.now()
    try {
      const told = String(await locks.release(held.get(resource)))
      return { told, raised: null, seconds: since(start) }
    } catch (error) {
      return { told: null, raised: error.name, seconds: since(start) }
    }
  },
  async hold({ resource, ttl, seconds, blocked }) {
    await locks.using(resource, ttl, async () => {
      say({ inside: true })
      await (blocked ? block(seconds) : sleep(seconds))
    })
    return {}
  },
  async loss({ resource, ttl, seconds }) {
    const start = performance.now()
    let after = null
    // What using does at its end is not asked here, and may take for ever.
    return new Promise((resolve) => {
      const using = locks.using(resource, ttl, (signal) => {
        say({ inside: true })
        return new Promise((end) => {
          signal.addEventListener('abort', () => {
            after = since(start) - ttl / 1000
            resolve({ after })
            end()
          })
          setTimeout(() => {
            resolve({ after })
            end()
          }, seconds * 1000)
        })
      })
      using.catch(() => {})
    })
  },
  async block({ resource, ttl, fails }) {
    try {
      await locks.using(resource, ttl, async () => {
        say({ inside: true })
        await lines.next()
        if (fails) throw new BodyError('the body')
      })
    } catch (error) {
      return { came_out: error.name }
    }
    return { came_out: null }
  },
  async idle({ seconds }) {
    await sleep(seconds)
    return {}
  },
}

const since = (start) => (performance.now() - start) / 1000
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))
const say = (message) => process.stdout.write(JSON.stringify(message) + '\n')
function block(seconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000)
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
say({ version: '' })
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const { do: action, ...request } = JSON.parse(line.value)
  try {
    say(await actions[action](request))
  } catch (error) {
    say({ error: String(error) })
  }
}
process.exit(0)
