// Turns the loss of a lease into an AbortSignal. Owns the wait for it; the core decides when a lease is lost.
// Renewals that are reported meanwhile are passed on.

import { AsyncResource } from 'node:async_hooks'

import { ref, unref, watch } from './bridge'
import type { Failure, NativeLease, NodeVote } from './native'

/** A signal that aborts when the lock is lost; `error` is the reason then. */
export type RedlockAbortSignal = AbortSignal & {
  /** Why it aborted. */
  error?: Error
}

/** How the caller handles a loss and renewals. */
export interface LossHandlers {
  /** The reason of the signal. */
  errorOf(failure: Failure): Error
  /** A node did not agree to a renewal. */
  renewed(votes: readonly NodeVote[]): void
}

/**
 * Waits for the loss of one lease, and tells it in the asynchronous context in which it was made. Does not keep the
 * lease in memory.
 */
export class LossWatch {
  readonly #controller = new AbortController()
  readonly #context = new AsyncResource('QuorlockLossWatch', { requireManualDestroy: true })
  readonly #forget: () => void
  #holds: boolean

  /** `alive`: keeps the process alive until the lease is lost or {@link end}ed. */
  constructor(lease: NativeLease, alive: boolean, { errorOf, renewed }: LossHandlers) {
    this.#holds = alive
    if (alive) ref()
    const lost = (error: Failure | undefined): void => {
      this.end()
      if (error !== undefined) this.abort(errorOf(error))
    }
    // Otherwise the context would be that of any other request whose result is delivered at the same time.
    const inContext = this.#context.runInAsyncScope.bind(this.#context)
    this.#forget = watch(lease, {
      lost: (error) => inContext(lost, undefined, error),
      renewed: (votes) => inContext(renewed, undefined, votes),
    })
  }

  /** Aborts when the lease is lost. */
  get signal(): RedlockAbortSignal {
    return this.#controller.signal
  }

  /** Aborts the signal with this reason, once. */
  abort(reason: unknown): void {
    abortWith(this.#controller, reason)
  }

  /** Stops waiting. */
  end(): void {
    this.#forget?.()
    if (this.#holds) unref()
    this.#holds = false
  }
}

/** Aborts with a reason that is also at `signal.error`, as in node-redlock. */
export function abortWith(controller: AbortController, reason: unknown): void {
  const signal: RedlockAbortSignal = controller.signal
  if (signal.aborted) return
  const error = reason instanceof Error ? reason : new Error(String(reason))
  Object.defineProperty(signal, 'error', { value: error, configurable: true, enumerable: true })
  controller.abort(reason)
}
