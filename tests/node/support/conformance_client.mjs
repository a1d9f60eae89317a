// Runs the Node package for the golden schedules of tests/conformance (clients.py there has the requests).
// Knows no schedule: it does what a request says, and answers with the result.
import { createInterface } from 'node:readline'
import { LockError, Redlock } from 'quorlock'

/** @typedef {{session: number, do: string, number: number, [field: string]: any}} Message */

/** Seconds of the system's monotonic clock. */
const now = () => Number(process.hrtime.bigint()) / 1e9

/** One manager. */
class Session {
  /** @type {import('quorlock').Lock | undefined} */
  #lock
  /** @type {AbortController | undefined} */
  #giveUp

  /** @param {Message} message */
  constructor({ session, urls, settings }) {
    this.session = session
    this.settings = settings
    this.redlock = new Redlock(urls, {
      restartGuard: settings.restart_guard,
      clockGuard: settings.clock_guard,
      nodeTimeout: settings.node_timeout,
      driftFactor: settings.drift_factor,
      retryCount: settings.retry_limit ?? -1,
      retryDelay: settings.retry_delay,
      retryJitter: settings.retry_jitter,
      unreachableTimeout: settings.unreachable_timeout,
      fencing: settings.fencing,
      maxHold: settings.max_hold,
      lockDelay: settings.lock_delay,
      minHold: settings.min_hold,
      maxTtl: settings.max_ttl,
      autoExtend: settings.auto_extend,
      wait: 'poll', // the nodes of the schedules know no queues
      ...(settings.timeout === null ? {} : { timeout: settings.timeout }),
    })
    this.redlock.on('warning', () => {})
  }

  /**
   * @param {string} event
   * @param {object} fields
   */
  tell(event, fields = {}) {
    process.stdout.write(JSON.stringify({ session: this.session, event, ...fields }) + '\n')
  }

  /** @param {Message} message */
  async warm({ resource }) {
    const { ttl, clock_guard: isGuarded } = this.settings
    if (isGuarded) {
      await (await this.redlock.acquire(resource, ttl, { autoExtend: false })).release()
    } else {
      await this.redlock.isLocked(resource)
    }
    this.tell('warm')
  }

  /** @param {Message} message */
  async acquire({ ttl = this.settings.ttl }) {
    this.#giveUp = new AbortController()
    const { signal } = this.#giveUp
    const lock = await this.redlock.acquire('r', ttl, { signal })
    this.#lock = lock
    if (this.settings.auto_extend) {
      lock.signal.addEventListener('abort', () =>
        this.tell('lost', { at: now(), message: lock.signal.error?.message }),
      )
    }
    return { word: 'won', token: lock.fencingToken }
  }

  /** @param {Message} message */
  async extend({ ttl }) {
    await this.#lock?.extend(ttl)
    return { word: 'extended' }
  }

  async release() {
    return { word: (await this.#lock?.release())?.outcome }
  }

  cancel() {
    this.#giveUp?.abort(new Cancelled())
  }

  /** @param {Message} message */
  look({ number }) {
    const from = now()
    const validity = this.#lock?.validity ?? 0
    this.tell('look', { number, until: validity > 0 ? from + validity / 1000 : null })
  }

  /** @param {Message} message */
  nodes({ number }) {
    const nodes = this.redlock.nodes.map(({ state, quarantinedFor = null }) => ({
      state,
      quarantine: quarantinedFor && quarantinedFor / 1000,
    }))
    this.tell('nodes', { number, nodes })
  }

  async close() {
    await this.redlock.quit()
  }
}

class Cancelled extends Error {
  code = 'CANCELLED'
}

/** @type {Map<number, Session>} */
const sessions = new Map()

/** @param {Message} message */
async function act(message) {
  const { number } = message
  if (message.do === 'open') {
    sessions.set(message.session, new Session(message))
    return
  }
  const session = /** @type {any} */ (sessions.get(message.session))
  try {
    const result = await session[message.do](message)
    if (result !== undefined) session.tell('ended', { number, at: now(), ...result })
  } catch (error) {
    const { code, message: text } = /** @type {LockError} */ (error)
    session.tell('ended', { number, at: now(), word: 'error', code, message: text })
  }
}

createInterface({ input: process.stdin }).on('line', (line) => void act(JSON.parse(line)))
