// Publishes acquisitions and holds on `node:diagnostics_channel`, for tracers. Owns the channels; does nothing
// while nobody subscribes.
//
// `quorlock:acquire` is a TracingChannel around `acquire()`. `quorlock:hold` has a `start` and an `end` when the
// lock has been acquired, in the caller's context, and an `asyncEnd` when it was released or lost.

import * as diagnostics from 'node:diagnostics_channel'

import type { Lock } from './lock'
import type { Redlock } from './redlock'

/** The message of `quorlock:acquire`; `result` or `error` is there in the end. */
export interface AcquireMessage {
  readonly redlock: Redlock
  readonly resources: string | readonly string[]
  readonly duration: number
  result?: Lock
  error?: unknown
}

/** The message of `quorlock:hold`; the last four are there in the end. */
export interface HoldMessage {
  readonly redlock: Redlock
  /** Undefined once the lock was collected as garbage, which following it does not prevent. */
  readonly lock: Lock | undefined
  readonly resources: readonly string[]
  /** `lost`, or what became of the release: `released`, `expired`, `taken`, `unknown`, `abandoned`. */
  outcome?: string
  /** Why it was lost. */
  reason?: string
  /** When it ended, in milliseconds since 1970: that may be told later. */
  endedAt?: number
  /** For how long it was held, in milliseconds. */
  heldFor?: number
}

type Channel = diagnostics.TracingChannel<object>

/** Absent before Node 18.19. */
const acquiring = diagnostics.tracingChannel?.('quorlock:acquire') as Channel | undefined
const holding = diagnostics.tracingChannel?.('quorlock:hold') as Channel | undefined

/** The acquisition that begins now is followed already. */
let isInside = false

/** Whether anyone follows acquisitions or holds; not from within {@link traceAcquire}. */
export function isTraced(): boolean {
  return !isInside && (hasSubscribers(acquiring) || hasSubscribers(holding))
}

/** Runs an acquisition, and follows the lock to its end. */
export async function traceAcquire(
  message: AcquireMessage,
  acquire: () => Promise<Lock>,
): Promise<Lock> {
  // The method that the user called stays the first of the stack of its errors: it is called once more, and reads
  // `isTraced` before it waits for anything.
  const begin = (): Promise<Lock> => {
    isInside = true
    try {
      return acquire()
    } finally {
      isInside = false
    }
  }
  const lock = await (acquiring === undefined ? begin() : acquiring.tracePromise(begin, message))
  if (hasSubscribers(holding) && !lock.degraded) traceHold(message.redlock, lock)
  return lock
}

/** What is told of the end of a hold. */
interface EndOfHold {
  readonly token: string
  readonly heldFor: number
}

function traceHold(redlock: Redlock, lock: Lock): void {
  // Weak: a lock that nobody has any more is given up, also while it is followed.
  const { resources, value: token } = lock
  const weak = new WeakRef(lock)
  const message: HoldMessage = {
    redlock,
    resources,
    get lock() {
      return weak.deref()
    },
  }
  const begun = Date.now()
  const channel = holding as Channel
  channel.traceSync(() => {}, message)
  const end = (event: EndOfHold, outcome: string, reason?: string): void => {
    const { heldFor } = event
    if (event.token !== token) return
    for (const stop of stops) stop()
    // Its end may be told late, and the clock be set meanwhile.
    const ended = { outcome, endedAt: begun + heldFor, heldFor }
    Object.assign(message, ended, reason === undefined ? {} : { reason })
    channel.asyncStart.publish(message)
    channel.asyncEnd.publish(message)
  }
  const stops = [
    redlock._eventSource.listen('released', (event) => end(event, event.outcome)),
    redlock._eventSource.listen('lost', (event) => end(event, 'lost', event.reason)),
  ]
}

function hasSubscribers(channel: Channel | undefined): boolean {
  return (
    channel !== undefined &&
    (channel.start.hasSubscribers ||
      channel.end.hasSubscribers ||
      channel.asyncStart.hasSubscribers ||
      channel.asyncEnd.hasSubscribers ||
      channel.error.hasSubscribers)
  )
}
