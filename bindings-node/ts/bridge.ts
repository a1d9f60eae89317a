// Starts operations in the native half and receives their results. Owns what is under way in this environment
// (each worker thread has its own) and what keeps the process alive; knows no lock.

import { atExit } from './at_exit'
import { after, atEndOfTurn, hasNextTurn, inNextTurn, throwUncaught } from './event_loop'
import {
  type Bridge,
  type Failure,
  type FailureFields,
  native,
  type NativeLease,
  type NodeVote,
} from './native'
import { onAbort } from './signals'

/** How an operation ended. */
export interface Settled {
  /** Its result, unless it failed. */
  readonly value: unknown
  /** A second value that belongs to the result: the token of a lease. */
  readonly beside: unknown
  /** Why it failed, or what else is wrong. */
  readonly error: Failure | undefined
}

/** How an operation can be cancelled before it has a result. */
export interface Cancellation {
  /** Cancels it when it aborts. */
  readonly signal: AbortSignal
  /** Gets the result if that was on its way already. */
  late(settled: Settled): void
}

/** What is called when a watched lease changes. */
export interface Watcher {
  /** It is lost; nothing comes after this. */
  lost(error: Failure | undefined): void
  /** A round of renewal has ended in which a node did not agree. */
  renewed(votes: readonly NodeVote[]): void
}

const waiting = new Map<number, (settled: Settled) => void>()
const watching = new Map<number, Watcher>()
let own: Bridge | undefined
let asked = 0
let isFlushing = false
let isExiting = false
let lastId = 0
let holds = 0

/**
 * Starts an operation and waits for its end, which keeps the process alive. Never rejects.
 *
 * Resolves with `undefined` if the signal of `cancellation` aborts first; the operation is then withdrawn.
 */
export function run(start: (id: number) => void, cancellation?: undefined): Promise<Settled>
export function run(
  start: (id: number) => void,
  cancellation: Cancellation | undefined,
): Promise<Settled | undefined>
export function run(
  start: (id: number) => void,
  cancellation?: Cancellation,
): Promise<Settled | undefined> {
  return new Promise((resolve) => {
    const id = nextId()
    const settle = cancellation === undefined ? resolve : orAborted(id, cancellation, resolve)
    start(id)
    ref()
    waiting.set(id, settle)
    // A process that exits has no end of this turn.
    if (isExiting) finish()
    else flushSoon()
  })
}

/** Registers who receives the end of operation `id`, which is cancelled when the signal aborts. */
function orAborted(
  id: number,
  { signal, late }: Cancellation,
  resolve: (settled: Settled | undefined) => void,
): (settled: Settled) => void {
  const unlisten = onAbort(signal, () => {
    unlisten()
    resolve(undefined)
    if (!native.cancel(bridge(), id)) return void waiting.set(id, late)
    waiting.delete(id)
    unref()
  })
  return (settled) => {
    unlisten()
    resolve(settled)
  }
}

/** Tells `watcher` of the lease until the returned function is called. */
export function watch(lease: NativeLease, watcher: Watcher): () => void {
  const id = nextId()
  watching.set(id, watcher)
  native.watch(lease, id)
  return () => void watching.delete(id)
}

/** Keeps the process alive until {@link unref} has been called as often. */
export function ref(): void {
  holds += 1
  if (holds === 1) native.keepAlive(bridge(), true)
}

/** Undoes one {@link ref}. */
export function unref(): void {
  holds -= 1
  if (holds === 0) native.keepAlive(bridge(), false)
}

/** As {@link after}, and keeps the process alive until then. */
export function afterAlive(millis: number, callback: () => void): () => void {
  let isOver = false
  const end = (): void => {
    if (!isOver) unref()
    isOver = true
  }
  const cancel = after(millis, () => {
    end()
    callback()
  })
  ref()
  return () => {
    end()
    cancel()
  }
}

/**
 * As {@link afterAlive}, but does not count time in which the event loop was busy and read nothing: the time passes in
 * steps, and one that ends late counts no more than another. Calls `onStep` after each but the last.
 */
export function afterFree(
  millis: number,
  callback: () => void,
  onStep: () => void = () => {},
): () => void {
  let left = STEPS
  let cancel = (): void => {}
  const step = (): void => {
    cancel = afterAlive(millis / STEPS, () => {
      left -= 1
      if (left === 0) return callback()
      step()
      onStep()
    })
  }
  step()
  return () => cancel()
}

/** This environment's connection to the native half. */
export function bridge(): Bridge {
  if (own === undefined) {
    own = native.bridge(drain, isNode())
    atExit(finish)
  }
  return own
}

/**
 * Starts everything that is asked for in one turn of the event loop together, at its end; if that is much, in
 * parts, so that the nodes work on one part while the next is being made.
 */
function flushSoon(): void {
  asked += 1
  if (asked === PART) flush()
  if (isFlushing) return
  isFlushing = true
  atEndOfTurn(() => {
    isFlushing = false
    if (asked > 0) flush()
  })
}

function flush(): void {
  asked = 0
  if (native.flush(bridge())) drain()
}

/**
 * Handles the results since the last call. If there are many, some at a time: what awaits them runs in between, so that
 * the first need not wait for the last.
 */
function drain(): void {
  const parts = native.take(bridge(), hasNextTurn() ? MOST_AT_ONCE : ALL)
  if (parts.length === 3 * MOST_AT_ONCE) inNextTurn(drain)
  for (let index = 0; index < parts.length; index += 3) {
    try {
      deliver(parts[index] as number, parts[index + 1], parts[index + 2])
    } catch (thrown) {
      // Of one result: the others have nothing to do with it.
      throwUncaught(thrown)
    }
  }
}

function deliver(id: number, value: unknown, beside: unknown): void {
  const error = Array.isArray(beside) ? readFailure(beside as unknown as FailureFields) : undefined
  const resolve = waiting.get(id)
  if (resolve === undefined) tell(id, value, error)
  else {
    waiting.delete(id)
    unref()
    resolve({ value, beside, error })
  }
}

function readFailure(fields: FailureFields): Failure {
  const [name, code, message, resources, attempts, elapsed, rounds] = fields
  return { class: name, code, message, resources, attempts, elapsed, rounds }
}

/** An event of a watched lease, for its watcher. */
function tell(id: number, value: unknown, error: Failure | undefined): void {
  const watcher = watching.get(id)
  if (Array.isArray(value)) watcher?.renewed(value)
  else if (watcher !== undefined) {
    watching.delete(id)
    watcher.lost(error)
  }
}

/** Operations under way when the process exits are withdrawn, on all nodes that answer at once. */
function finish(): void {
  if (own === undefined) return
  isExiting = true
  native.finish(own)
  const withdrawn = [...waiting.values()]
  waiting.clear()
  // A process that ends has no next turn. One that goes on has only called the listeners.
  atEndOfTurn(() => {
    isExiting = false
    native.goOn()
    for (const settle of withdrawn) {
      unref()
      settle({ value: undefined, beside: undefined, error: WITHDRAWN })
    }
  })
}

const WITHDRAWN: Failure = {
  class: 'ExecutionError',
  code: 'CANCELLED',
  message: "the operation was cancelled by the process's 'exit' event",
  resources: [],
  attempts: 0,
  elapsed: 0,
  rounds: [],
}

/** Other runtimes with addons have an event loop that is not Node's. */
function isNode(): boolean {
  const { bun, deno } = process.versions
  return bun === undefined && deno === undefined
}

function nextId(): number {
  do {
    lastId = (lastId + 1) >>> 0
  } while (waiting.has(lastId) || watching.has(lastId))
  return lastId
}

/** Of {@link afterFree}: enough to send a question, and to read its answer, in a program that is always busy. */
const STEPS = 5
/** After this many operations the engine is woken without waiting for the turn to end. */
const PART = 32
/** How many results are handled before their awaiters run. */
const MOST_AT_ONCE = 256
const ALL = 2 ** 32 - 1
