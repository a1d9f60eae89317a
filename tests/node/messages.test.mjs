// Tests the sentences of errors: they use Node's words, do not contradict each other, and name each fault
// once.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, beforeEach, describe, it } from 'node:test'
import {
  ConfigError,
  ExecutionError,
  LeaseLostError,
  LockNotHeldError,
  QuorumUnreachableError,
  Redlock,
} from 'quorlock'
import { startServers } from './support/servers.mjs'

const memory = ['memory://messages-a', 'memory://messages-b', 'memory://messages-c']
const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window. '

/** @param {() => unknown} call @returns {Promise<any>} */
async function caught(call) {
  try {
    await call()
  } catch (error) {
    return error
  }
  return assert.fail('it did not fail')
}

describe('a message about settings', () => {
  const redlock = new Redlock(memory)
  for (const [words, call] of /** @type {[string, () => unknown][]} */ ([
    [
      'restartGuard is one for all locks of a manager: set it where the manager is made',
      () => redlock.acquire('r', 1000, /** @type {any} */ ({ restartGuard: 'strict' })),
    ],
    [
      'a lock may keep its keys for at most maxTtl, 5 ms, and this one asks for 2000 ms',
      () => new Redlock(memory, { maxTtl: 5 }).acquire('r', 2000),
    ],
    [
      'duration and lockDelay together must be below 2^53 ms, not 9007199254740996 ms',
      () => redlock.acquire('r', 2 ** 53 - 1, { lockDelay: 5 }),
    ],
    ['nodeTimeout must be above zero', () => new Redlock(memory, { nodeTimeout: 0 })],
    [
      'duration 1 ms is not above the drift allowance of 2.01 ms (duration * 0.01 + 2 ms), so that no lease could ever be valid',
      () => redlock.acquire('r', 1),
    ],
    ["resource 'max_ttl' is named twice", () => redlock.acquire(['max_ttl', 'max_ttl'], 1000)],
    [
      'using() needs a function to run, as its last argument, not undefined',
      () => redlock.using('r', 1000, /** @type {any} */ (undefined)),
    ],
  ])) {
    it(`has Node's names: ${words}`, async () => {
      const error = await caught(call)
      assert.ok(error instanceof ConfigError)
      assert.equal(error.message, words)
    })
  }
})

describe('a stack', () => {
  const redlock = new Redlock(memory)

  for (const writable of [true, false]) {
    it(`begins where the user called, with a limit that is ${writable ? '' : 'not '}writable`, async () => {
      const limit = { value: 7, writable, enumerable: true, configurable: true }
      const before = Object.getOwnPropertyDescriptor(Error, 'stackTraceLimit') ?? limit
      const lock = await redlock.acquire('r', 20_000)
      Object.defineProperty(Error, 'stackTraceLimit', limit)
      try {
        const error = await caught(() => redlock.acquire('r', 1000, { retryCount: 0 }))
        assert.match(
          error.stack,
          /^ExecutionError: .*\n    at Redlock\.acquire [^]*messages\.test\.mjs/,
        )
        assert.deepEqual(Object.getOwnPropertyDescriptor(Error, 'stackTraceLimit'), limit)
      } finally {
        Object.defineProperty(Error, 'stackTraceLimit', before)
      }
      await lock.release()
    })
  }
})

describe('a message about nodes', () => {
  /** @type {import('./support/servers.mjs').Cluster} */
  let cluster
  before(async () => void (cluster = await startServers(3)))
  beforeEach(() => cluster.reset())
  after(() => cluster.close())

  it('repeats a long duration as it was given', async () => {
    const redlock = new Redlock(cluster.urls)
    const warning = once(redlock, 'warning')
    await (await redlock.acquire('r', 7_200_000)).release()
    const [{ name, message }] = await warning
    assert.equal(name, 'long-lock')
    assert.match(
      message,
      /^a lock asks the nodes to keep its keys for 7200000 ms: .* or set maxTtl /,
    )
    await redlock.close()
  })

  it('says which option to set in Node', async () => {
    const users = { app: ['on', '>secret', '~r', '~quorlock:fence:*', '&*', '+@all'] }
    const [server] = await cluster.start(1, { users })
    const url = `redis://app:secret@127.0.0.1:${server?.port}`
    const redlock = new Redlock([url], { retryCount: 0, restartGuard: 'strict' })
    const { message, votes } = await caught(() => redlock.acquire('r', 5000))
    const words = 'or set restartGuard to "off" and clockGuard to false'
    for (const text of [message, votes[0].error.message, redlock.nodes[0]?.detail])
      assert.ok(text.includes(words), text)
    assert.doesNotMatch(message, /[a-z]_guard/)
    await redlock.close()
  })

  it('says once that there is no quorum, and a fault that nodes share once', async () => {
    const gone = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3']
    const redlock = new Redlock(gone, { retryCount: 0 })
    const error = await caught(() => redlock.acquire('lock_delay', 5000))
    const fault = 'cannot connect: connection refused: is the server running?'
    const rest = `2 of 3 nodes are needed, 0 granted, 3 failed (${gone.join(', ')}: ${fault})`
    assert.equal(error.message, `${NO_QUORUM}'lock_delay': ${rest}`)
    assert.deepEqual([error.name, error.code], ['ExecutionError', 'QUORUM_UNREACHABLE'])
    assert.ok(error instanceof QuorumUnreachableError)
    // What node-redlock has not needs none of its sentences and names.
    const own = await caught(() => redlock.isLocked('lock_delay'))
    assert.equal(own.message, `no quorum for 'lock_delay': ${rest}`)
    assert.deepEqual([own.name, own.code], ['QuorumUnreachableError', 'QUORUM_UNREACHABLE'])
    assert.ok(own instanceof QuorumUnreachableError && own instanceof ExecutionError)
    await redlock.close()
  })

  it('goes on after the sentence of node-redlock with one of its own', async () => {
    const redlock = new Redlock(cluster.urls, { retryDelay: 5, retryJitter: 0 })
    const lock = await redlock.acquire('r', 20_000)
    const held = await caught(() => redlock.acquire('r', 1000, { retryCount: 0 }))
    assert.ok(held.message.startsWith(`${NO_QUORUM}'r' is held by another: `), held.message)
    const late = await caught(() => redlock.acquire('r', 1000, { timeout: 30 }))
    assert.ok(late.message.startsWith(`${NO_QUORUM}Gave up waiting for 'r' after `), late.message)
    await lock.release()
    const over = await caught(() => lock.extend(1000))
    assert.ok(over instanceof LockNotHeldError)
    assert.match(over.message, /^Cannot extend an already-expired lock\. 'r' is not held: /)
    await redlock.close()
  })

  it('tells the release of a lock whose keys others have replaced', async () => {
    const redlock = new Redlock(cluster.urls)
    const lock = await redlock.acquire('r', 20_000)
    for (const server of cluster.servers.slice(0, 3)) {
      await server.command('DEL', 'r')
      await server.command('RPUSH', 'r', 'x')
    }
    const error = await caught(() => lock.release())
    assert.ok(error instanceof LeaseLostError)
    assert.match(error.message, /^'r' was held by another when it was released; work under/)
    assert.match(error.votes[0]?.error?.message ?? '', /a key of another type is in the way of 'r'/)
    await redlock.close()
  })
})
