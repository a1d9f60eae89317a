// Events of locks and nodes. Owns their types, that the native half makes only those that somebody
// listens to, and that those of what has happened are told before a Redlock is collected or the process ends.

import type { EventEmitter } from 'node:events'

import { ref, unref } from './bridge'
import { after } from './event_loop'
import { native, type NativeRedlock } from './native'

/** What every event has. */
interface Base {
  /** What happened, for programs. */
  readonly name: keyof RedlockEvents
  /** When it happened, in milliseconds since 1970. */
  readonly at: number
}

interface OfLock extends Base {
  /** The name of what is locked; the first of several. */
  readonly resource: string
  /** The names of what is locked. */
  readonly resources: readonly string[]
}

interface OfLease extends OfLock {
  /** The holder id, `Lock.value`: not for logs, since who knows it can release the lock. */
  readonly token: string
  /** The number that the protected resource checks; absent where fencing is off. */
  readonly fencingToken?: number
}

/** What one node did in a round. */
interface EventVote {
  readonly address: string
  readonly outcome: 'granted' | 'refused' | 'failed' | 'missing'
  /** In milliseconds. */
  readonly latency: number
  readonly detail?: string
}

/** The events of a {@link Redlock}, each with its one argument. Times are in milliseconds. */
export interface RedlockEvents {
  /** A lock was acquired, after `waited` and `attempts` rounds. */
  acquired: OfLease & { waited: number; attempts: number; votes: readonly EventVote[] }
  /** A round was refused, because another holds the lock: for `holderEndsIn` at most, if the nodes told. */
  contended: OfLock & { holderEndsIn?: number }
  /** A caller waits for the lock; `rank` others are before it in the nodes' queues, if it has a place there. */
  waiting: OfLock & { rank?: number; holderEndsIn?: number }
  /** A caller that waited for that time tries again: a node told it, this process has released it, or it was time. */
  woken: OfLock & { by: 'push' | 'watch' | 'timer'; waited: number }
  /** A lock was prolonged; `slack` is the part of the validity that was left before, from 0 to 1. */
  extended: OfLease & { validity: number; slack: number }
  /** A lock could not be prolonged so far; the rest of its validity stays good. */
  extension_failed: OfLease & { validity: number; detail: string }
  /** A lock was lost: work done under it may overlap another holder's. */
  lost: OfLease & { reason: 'expired' | 'gone' | 'held-too-long'; detail: string; heldFor: number }
  /** A lock was given back, or its last object was collected without that (`abandoned`). */
  released: OfLease & {
    outcome: 'released' | 'expired' | 'taken' | 'unknown' | 'abandoned'
    heldFor: number
  }
  /** The state of a node has changed; see {@link NodeStatus}. */
  node: Base & { address: string; from: string; to: string; detail?: string }
  /** A node may have forgotten locks: its votes do not count for about this time. */
  quarantined: Base & { address: string; reason: string; lasts: number }
  /** A clock was set, or stood still with this machine (then without an address). */
  clock_step: Base & { address?: string; by?: number; direction: 'forward' | 'back' | 'paused' }
  /** No quorum could be reached, and the work goes on without the lock (`onUnreachable`). */
  degraded: OfLock & { detail: string }
}

/** Any event. */
export type RedlockEvent = RedlockEvents[keyof RedlockEvents]

/** Passes the events of one Redlock on. */
export class EventSource {
  readonly #of: WeakRef<EventEmitter>
  readonly #native: () => NativeRedlock
  readonly #own = new Map<string, Set<(event: never) => void>>()
  #subscribed = ''
  /** Who waits for the events up to a time; the first is told first. */
  readonly #waiting: (() => void)[] = []
  #isKept = false
  #isKeptLonger = false

  constructor(emitter: EventEmitter, handle: () => NativeRedlock) {
    // Weak, so that the native half does not keep the Redlock from being collected.
    this.#of = new WeakRef(emitter)
    this.#native = handle
    this.#follow(emitter)
  }

  /** Follows each added and removed listener: Node emits both events during the change. */
  #follow(emitter: EventEmitter): void {
    const added = (name: unknown): void => {
      if (NAMES.includes(name as string)) this.#subscribe(name as string)
    }
    const removed = (name: unknown, listener: unknown): void => {
      if (NAMES.includes(name as string)) this.#subscribe()
      // `removeAllListeners()` has taken these two as well.
      if (listener === added) queueMicrotask(() => this.#followAgain(emitter, removed))
    }
    emitter.on('newListener', added)
    emitter.on('removeListener', removed)
  }

  #followAgain(emitter: EventEmitter, removed: (name: unknown, listener: unknown) => void): void {
    emitter.off('removeListener', removed)
    this.#follow(emitter)
    this.#subscribe()
  }

  /** Calls `listener` beside those of the Redlock; returns what ends that. */
  listen<K extends keyof RedlockEvents>(
    name: K,
    listener: (event: RedlockEvents[K]) => void,
  ): () => void {
    const listeners = this.#own.get(name) ?? new Set()
    this.#own.set(name, listeners.add(listener))
    this.#subscribe()
    return () => {
      listeners.delete(listener)
      this.#subscribe()
    }
  }

  /** To be called when something has happened: the events of it are told, even if nobody keeps the Redlock any more. */
  keep(): void {
    this.#isKeptLonger = this.#isKept
    if (this.#isKept) return
    this.#isKept = this.#whenTold(() => {
      this.#isKept = false
      if (this.#isKeptLonger) this.keep()
    })
  }

  /** Resolves when the events of all that has happened are told, after one second at the latest. */
  async settle(): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = after(PATIENCE, resolve)
      const end = (): void => {
        cancel()
        resolve()
      }
      if (!this.#whenTold(end)) end()
    })
  }

  /**
   * Calls `then` after the events of all that has happened, unless nobody listens. Until then this and the Redlock
   * stay in memory, and the process alive: for no longer than it takes to call the listeners.
   */
  #whenTold(then: () => void): boolean {
    if (this.#subscribed === '' || !native.endEvents(this.#native())) return false
    const stay = [this, this.#of.deref()]
    staying.add(stay)
    ref()
    this.#waiting.push(() => {
      staying.delete(stay)
      unref()
      then()
    })
    return true
  }

  /** The native half is another one now. */
  renew(): void {
    this.#subscribed = ''
    this.#subscribe()
  }

  #subscribe(also?: string): void {
    const emitter = this.#of.deref()
    const wanted = NAMES.filter(
      (name) => name === also || emitter?.listenerCount(name) || this.#own.get(name)?.size,
    )
    if (wanted.join() === this.#subscribed) return
    this.#subscribed = wanted.join()
    native.subscribe(this.#native(), wanted, EventSource.#teller(new WeakRef<EventSource>(this)))
  }

  /** Made apart: functions of one scope share what each of them captures, and the native half keeps this one. */
  static #teller(own: WeakRef<EventSource>): (json: string) => void {
    return (json) => {
      const source = own.deref()
      if (source !== undefined) source.#tell(json)
    }
  }

  /** An empty text stands for the end of the events that {@link #whenTold} waits for. */
  #tell(json: string): void {
    if (json === '') return this.#waiting.shift()?.()
    const frozen = (_: string, value: unknown): unknown => Object.freeze(value)
    const event = JSON.parse(json, frozen) as RedlockEvent
    for (const listener of this.#own.get(event.name) ?? []) listener(event as never)
    this.#of.deref()?.emit(event.name, event)
  }
}

/** What must not be collected before its events are told. */
const staying = new Set<unknown>()
/** In milliseconds. */
const PATIENCE = 1000
const NAMES: readonly string[] = [
  'acquired',
  'contended',
  'waiting',
  'woken',
  'extended',
  'extension_failed',
  'lost',
  'released',
  'node',
  'quarantined',
  'clock_step',
  'degraded',
]
