// Keeps what an instrumentation calls (tracers, span processors, meters) from breaking locks: a subscriber of a
// channel that throws ends the process. Owns that an error is told once for each operation.

import { inspect } from 'node:util'

import type { Redlock } from './redlock'

/** Calls what observes one operation, which goes on whatever that throws. The first error is a warning. */
export class Guard {
  readonly #redlock: Redlock
  #hasFailed = false

  constructor(redlock: Redlock) {
    this.#redlock = redlock
  }

  /** What the function returns, or undefined if it throws. */
  call<T>(observe: () => T): T | undefined {
    try {
      return observe()
    } catch (error) {
      if (!this.#hasFailed) {
        this.#hasFailed = true
        const message = `a tracer failed, and the lock goes on without it: ${inspect(error)}`
        this.#redlock._warn({ name: 'tracer-failed', message })
      }
      return undefined
    }
  }
}

/** By the message or the lock that an operation has: every instrumentation of a Redlock gets the same. */
const guards = new WeakMap<object, Guard>()

/** The guard of the operation with this message or lock. */
export function guardOf(redlock: Redlock, operation: object): Guard {
  const guard = guards.get(operation) ?? new Guard(redlock)
  guards.set(operation, guard)
  return guard
}

/** Has `later`, too, be a part of the operation with this message. */
export function shareGuard(redlock: Redlock, operation: object, later: object): void {
  guards.set(later, guardOf(redlock, operation))
}
