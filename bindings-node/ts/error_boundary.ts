// Keeps what an instrumentation calls (tracers, span processors, meters) from breaking locks: a subscriber of a
// channel that throws ends the process. Owns that an error is told once for each operation.

import { inspect } from 'node:util'

import type { Redlock } from './redlock'

/** Calls what observes one operation, which goes on whatever that throws. The first error is a warning. */
export class ErrorBoundary {
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
const boundaries = new WeakMap<object, ErrorBoundary>()

/** The boundary of the operation with this message or lock. */
export function boundaryOf(redlock: Redlock, operation: object): ErrorBoundary {
  const boundary = boundaries.get(operation) ?? new ErrorBoundary(redlock)
  boundaries.set(operation, boundary)
  return boundary
}

/** Has `later`, too, be a part of the operation with this message. */
export function shareBoundary(redlock: Redlock, operation: object, later: object): void {
  boundaries.set(later, boundaryOf(redlock, operation))
}
