// The way into the native half and back. Owns what is under way in this environment (each worker
// thread has its own) and what keeps the process alive; knows no lock.

import { clearInterval, setInterval } from 'node:timers'

import { Bridge, type NativeLease, type NodeVote, type Settled } from './native'
import { onAbort } from './signals'

/** Who hears of a watched lease. */
export interface Watcher {
  /** It is lost; nothing comes after this. */
  lost(settled: Settled): void
  /** A round of renewal is over in which a node did not consent. */
  renewed(votes: readonly NodeVote[]): void
}

const waiting = new Map<number, (settled: Settled) => void>()
const watching = new Map<number, Watcher>()
let native: Bridge | undefined
let isFlushing = false
let lastId = 0
let holds = 0
let anchor: NodeJS.Timeout | undefined

/**
 * Starts an operation and waits for its end, which keeps the process alive. Never rejects.
 *
 * Resolves with `undefined` if `signal` aborts first; the operation is then withdrawn.
 */
export function run(
  start: (bridge: Bridge, id: number) => void,
  signal?: AbortSignal,
): Promise<Settled | undefined> {
  return new Promise((resolve) => {
    const id = nextId()
    const end = (settled: Settled | undefined): void => {
      waiting.delete(id)
      unlisten?.()
      letGo()
      resolve(settled)
    }
    const abort = (): void => {
      // False: the result is on its way already.
      if (bridge().cancel(id)) end(undefined)
    }
    start(bridge(), id)
    flushSoon()
    hold()
    waiting.set(id, end)
    const unlisten = signal && onAbort(signal, abort)
  })
}

/** Tells `watcher` of the lease until the returned function is called. */
export function watch(lease: NativeLease, watcher: Watcher): () => void {
  const id = nextId()
  watching.set(id, watcher)
  lease.watch(bridge(), id)
  return () => void watching.delete(id)
}

/** Keeps the process alive until {@link letGo} has been called as often. */
export function hold(): void {
  holds += 1
  if (holds > 1) return
  // Something for the event loop to wait for: it fires every 24 days and does nothing.
  if (anchor === undefined) anchor = setInterval(() => {}, 2 ** 31 - 1)
  anchor.ref()
}

/** Takes one {@link hold} back. */
export function letGo(): void {
  holds -= 1
  if (holds === 0) anchor?.unref()
}

function bridge(): Bridge {
  if (native === undefined) {
    native = new Bridge(drain)
    process.once('exit', finish)
  }
  return native
}

/** Has what is asked for in this turn of the event loop started together, at its end. */
function flushSoon(): void {
  if (isFlushing) return
  isFlushing = true
  process.nextTick(flush)
}

function flush(): void {
  isFlushing = false
  bridge().flush()
}

/** Everything that has ended since the last time, in one hop from the native half's thread. */
function drain(): void {
  for (const settled of bridge().take()) {
    const watcher = watching.get(settled.id)
    if (settled.renewal !== undefined) {
      watcher?.renewed(settled.renewal)
    } else if (watcher !== undefined) {
      watching.delete(settled.id)
      watcher.lost(settled)
    } else {
      waiting.get(settled.id)?.(settled)
    }
  }
}

/** What is under way when the process exits is withdrawn; nodes that answer at once hear of it. */
function finish(): void {
  clearInterval(anchor)
  native?.finish(EXIT_PATIENCE)
}

function nextId(): number {
  do {
    lastId = (lastId + 1) >>> 0
  } while (waiting.has(lastId) || watching.has(lastId))
  return lastId
}

/**
 * How long the end of the process may be held up, in milliseconds: only if a node does not answer.
 */
const EXIT_PATIENCE = 100
