// What a warning holds, and how it becomes one of the process where no listener takes it. Owns what is told once
// although every manager of the process sees it.

import { uptime } from './event_loop'
import type { Notice } from './native'

/**
 * Something that a person should know, although nothing has failed because of it yet: the
 * argument of `warning` events.
 */
export interface Warning {
  /**
   * `node-down`: a node has taken no part for two seconds. `node-up`: it takes part again.
   * `quarantined`: a node may have forgotten locks. `long-wait`: it is held back for more than a
   * minute. `long-lock`: a lock lasts for more than an hour, and `maxTtl` is not set.
   * `clock-set-back`: a node's clock is not right. `paused`: this machine stood still.
   * `may-evict`: a server may throw locks out.
   * `no-push`: a node cannot tell callers when a lock is free, so they try again after each delay.
   * `not-independent`: two addresses lead to one server, or one follows the other.
   * `degraded`: too few nodes can be reached, and work goes on without its lock (`onUnreachable`).
   * `credentials-changed`: a client object has others than those that were read from it.
   * `unknown-database`: a client object does not tell which database it has selected, or has not told it for
   * two seconds.
   * `tracer-failed`: a tracer or a span processor of OpenTelemetry has thrown an error.
   */
  readonly name: string
  /** What was seen, what it means and what to do. */
  readonly message: string
  /** The address of the node that it is about, without a password, if it is about one. */
  readonly address?: string
}

/** What is told where no native half does it, which knows what others have told. */
export type Told = Omit<Notice, 'isRepeat'> & Partial<Notice>

/** Emits a warning of the process, unless another manager has told the same. */
export function warnProcess(notice: Told): void {
  if (!isNews(notice)) return
  const code = `QUORLOCK_${notice.name.toUpperCase().replaceAll('-', '_')}`
  process.emitWarning(notice.message, { type: 'QuorlockWarning', code })
}

/** A listener has taken a warning: of an outage that is new, the process has not been told. */
export function tellNoProcess({ name, address, isRepeat }: Told): void {
  if (name in OPPOSITE && !isRepeat) told.delete(`${name} ${address}`)
}

/** What was seen of a node: the text but for times in it, when, and until when the node is held back (0 if it is not). */
interface Seen {
  readonly withoutTimes: string
  readonly at: number
  readonly ends: number
}

/** What was told last of one node under one name, and when it was seen last. */
const told = new Map<string, Seen>()

function isNews({ name, message, address, isRepeat }: Told): boolean {
  if (!OF_NODES.has(name)) return true
  const [key, at] = [`${name} ${address}`, uptime()]
  const [opposite, before] = [OPPOSITE[name], told.get(key)]
  // Managers see one outage up to ten seconds apart, and may have other words for it.
  if (isRepeat && before !== undefined) return false
  // A node that was down and is up is down anew, also if another manager sees it this time.
  if (opposite !== undefined) told.delete(`${opposite} ${address}`)
  const ends = HELD_BACK.has(name) ? endOf(message, at) : 0
  const seen = { withoutTimes: message.replaceAll(TIMES, ''), at, ends }
  if (before !== undefined && isSame(name, before, seen)) {
    // Managers that follow each other closely see one event.
    told.set(key, SETTINGS.has(name) ? before : { ...before, at })
    return false
  }
  if (told.size >= MOST_TOLD) told.clear()
  told.set(key, seen)
  return true
}

function isSame(name: string, before: Seen, seen: Seen): boolean {
  // What is a repetition may come before what it repeats, in other words.
  const isOutage = OPPOSITE[name] !== undefined
  return (
    (isOutage || seen.withoutTimes === before.withoutTimes) &&
    seen.at - before.at < (SETTINGS.has(name) ? LASTING : SAME_EVENT) &&
    // One that is held back for longer was restarted meanwhile.
    seen.ends - before.ends < SAME_EVENT
  )
}

/** When the last time is over that a message names; 0 if it names none. */
function endOf(message: string, now: number): number {
  const [number, unit] = message.match(TIMES)?.at(-1)?.split(' ') ?? []
  return number === undefined ? 0 : now + Number(number) * (unit === 'ms' ? 1 : 1000)
}

/** What tells how a server is set up. */
const SETTINGS = new Set(['may-evict', 'no-push'])
/** What tells of the state of a node, which every manager that uses it sees. */
const OF_NODES = new Set([
  ...['node-down', 'node-up', 'quarantined', 'long-wait', 'unknown-database'],
  ...SETTINGS,
])
/** What tells for how long a node is held back. */
const HELD_BACK = new Set(['quarantined', 'long-wait'])
const OPPOSITE: Record<string, string> = { 'node-down': 'node-up', 'node-up': 'node-down' }

/** Times, as the core writes them. */
const TIMES = /\d+(?:\.\d+ s| ms)\b/g

/** How far apart managers see the same event at most, in milliseconds. */
const SAME_EVENT = 5000
/** How often it is told how a server is set up, in milliseconds. */
const LASTING = 3_600_000
const MOST_TOLD = 1000
