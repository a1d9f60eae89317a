// A client in Node: takes locks in every way that users do, and increments counters under them.
//
// Writes down what it was promised before it relies on it, so that a kill loses no promise, and
// that it gives a lock back before it does. Judges nothing. The same as worker.py.
import { once } from 'node:events'
import { openSync, writeSync } from 'node:fs'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  ExecutionError,
  LeaseLostError,
  QuorumUnreachableError,
  Redlock,
  ResourceLockedError,
} from 'quorlock'

/** How often which: name, weight. */
const HABITS = {
  block: 8, // using(), renewed
  bare: 8, // acquire and release, not renewed
  renewed: 4, // acquire with autoExtend
  extended: 4, // extended by hand
  'at once': 6, // retryCount 0
  impatient: 4, // a short timeout
  cancelled: 4, // an AbortSignal during the wait
  careless: 1, // goes on after the end, and writes what it read before
  forgotten: 1, // neither released nor renewed: left to its ttl
}
const EXPECTED = [ExecutionError, LeaseLostError, QuorumUnreachableError, ResourceLockedError]

const orders = JSON.parse(process.argv[2])
const ttl = orders.ttl * 1000
const log = openSync(orders.log, 'a')
const settings = { nodeTimeout: 150, retryCount: -1, retryDelay: 40, retryJitter: 30 }
const guards =
  orders.guards === null
    ? {}
    : { restartGuard: orders.guards, clockGuard: orders.guards !== 'off', maxTtl: ttl }
const redlock = new Redlock(orders.nodes, { ...settings, ...guards })
// What nodes go through is known here.
redlock.on('warning', () => {})
redlock.on('error', () => {}) // refusals and dead nodes are what this is about
let stopping = false

const now = () => Number(process.hrtime.bigint()) / 1e9 + orders.boottime_ahead
const say = (record) => writeSync(log, JSON.stringify(record) + '\n')
const uniform = (from, to) => from + Math.random() * (to - from)
const exponential = (mean) => -mean * Math.log(1 - Math.random())

function choose(weights) {
  let left = Math.random() * Object.values(weights).reduce((sum, weight) => sum + weight)
  return Object.keys(weights).find((name) => (left -= weights[name]) < 0)
}

class Worker {
  #turns = 0
  #counter
  #answers

  constructor(number, counter) {
    this.id = `${orders.name}/${number}`
    this.#counter = counter
    this.#answers = createInterface({ input: counter })[Symbol.asyncIterator]()
  }

  static async start(number) {
    const counter = connect(orders.counter)
    await once(counter, 'connect')
    return new Worker(number, counter)
  }

  async work() {
    while (!stopping) {
      this.#turns += 1
      try {
        await this.#turn()
      } catch (error) {
        if (error.name === 'AbortError') say({ what: 'error', name: 'cancelled' })
        else if (EXPECTED.some((kind) => error instanceof kind))
          say({ what: 'error', name: error.constructor.name })
        else {
          say({ what: 'problem', text: `${this.id}: ${error.stack}` })
          throw error
        }
      }
      await sleep(exponential(30))
    }
    this.#counter.destroy()
  }

  async #turn() {
    const habit = choose(HABITS)
    const [first, second] = orders.names
    const names = [[first], [second], [first, second]][choose({ 0: 3, 1: 1, 2: 1 })]
    const asked = now()
    if (habit === 'block') {
      await redlock.using(names, ttl, { timeout: 4000 }, async (signal, { lock }) => {
        try {
          await this.#hold(habit, asked, lock)
        } finally {
          this.#ends()
        }
      })
      return
    }
    const lock = await this.#acquire(habit, names)
    try {
      await this.#hold(habit, asked, lock)
    } finally {
      this.#ends()
      if (habit !== 'forgotten') await lock.release()
    }
  }

  #acquire(habit, names) {
    if (habit === 'at once') return redlock.acquire(names, ttl, { retryCount: 0 })
    if (habit === 'impatient') return redlock.acquire(names, ttl, { timeout: uniform(0, 300) })
    if (habit === 'renewed') return redlock.acquire(names, ttl, { autoExtend: true, timeout: 4000 })
    const fair = names.length === 1 && Math.random() < 0.3
    if (habit !== 'cancelled') return redlock.acquire(names, ttl, { timeout: 4000, fair })
    const controller = new AbortController()
    const timer = setTimeout(() => controller.abort(), uniform(0, 200))
    const { signal } = controller
    return redlock.acquire(names, ttl, { signal }).finally(() => clearTimeout(timer))
  }

  async #hold(habit, asked, lock) {
    if (!this.#held(asked, lock)) return
    const end = now() + this.#length(habit)
    for (;;) {
      const read = await this.#read(lock)
      if (read === null) return
      if (habit === 'careless') await sleep(lock.validity + uniform(20, 400))
      else {
        await sleep(exponential(5))
        if (!this.#still(lock)) return
      }
      await this.#write(lock, read)
      if (now() > end || habit === 'careless' || stopping) return
      await sleep(Math.min(100, Math.max(0, (end - now()) * 1000)))
      if (habit === 'extended') await lock.extend(ttl)
      if (!this.#still(lock)) return
    }
  }

  /** Mostly short, so that many come to their turn; some longer than the ttl. */
  #length(habit) {
    if (Math.random() < 0.9) return exponential(0.02)
    const longest = ['block', 'renewed', 'extended'].includes(habit) ? 2.5 : 0.9
    return uniform(0.3, longest) * orders.ttl
  }

  async #read(lock) {
    const read = new Map()
    for (const name of lock.resources) read.set(name, await this.#ask('read', name, lock))
    if ([...read.values()].every((answer) => answer.accepted)) return read
    say({ what: 'error', name: 'turned away by the counter' })
    return null
  }

  async #write(lock, read) {
    for (const [name, { value, careless }] of read)
      await this.#ask('write', name, lock, { value: value + 1, careless: careless + 1 })
  }

  /** See counter.py. */
  async #ask(what, name, lock, values = {}) {
    const request = { do: what, name, lease: this.#lease, token: lock.fencingToken, ...values }
    this.#counter.write(JSON.stringify(request) + '\n')
    return JSON.parse((await this.#answers.next()).value)
  }

  get #lease() {
    return `${this.id}#${this.#turns}`
  }

  #held(asked, lock) {
    // The clock is read first: what is written is never later than what was promised.
    const at = now()
    const validity = lock.validity / 1000
    if (validity <= 0) {
      say({ what: 'error', name: 'over when it was told' })
      return false
    }
    const [lease, token, until] = [this.#lease, lock.fencingToken, at + validity]
    say({ what: 'held', lease, names: lock.resources, token, asked, at, until, ttl: orders.ttl })
    return true
  }

  #still(lock) {
    const at = now()
    const validity = lock.validity / 1000
    // The end lies between the two: the process may have been stopped in the middle.
    const latest = now() + validity
    if (validity > 0) say({ what: 'still', lease: this.#lease, until: at + validity, latest })
    return validity > 0
  }

  #ends() {
    say({ what: 'ends', lease: this.#lease, at: now() })
  }
}

process.stdin.on('end', () => (stopping = true)).resume()
const workers = await Promise.all(Array.from({ length: orders.tasks }, (_, i) => Worker.start(i)))
await Promise.all(workers.map((worker) => worker.work()))
await redlock.quit()
process.exit(0)
