// Reads and checks what users pass: settings, resources, durations. Owns the checks of types; bounds are the
// native half's.

import { ConfigError, describe, wrongType } from './errors'
import { type Owner, readOwner, refuseOwner } from './holder'
import { native, type Settings as NativeSettings } from './native'
import { warnOfUnknown } from './unknown'

/**
 * The settings of a manager, or of one operation. All times are in milliseconds.
 *
 * The first five are node-redlock's, with its defaults. A name that is none of these is ignored, as
 * in node-redlock, with a warning of the process (`QUORLOCK_UNKNOWN_SETTING`).
 */
export interface Settings {
  /**
   * The part of the duration that is subtracted because clocks run at different rates. Default 0.01.
   */
  readonly driftFactor: number
  /**
   * How many tries may follow the first; 0 tries once, -1 without limit. Default 10. Where a
   * `timeout` is given and no `retryCount` beside it, tries continue until the timeout.
   */
  readonly retryCount: number
  /** The mean delay between two tries. Default 200. */
  readonly retryDelay: number
  /** How far a delay may lie from the mean, either way. Default 100. */
  readonly retryJitter: number
  /**
   * Taken for node-redlock's sake: there, `using` extends when so little is left. Here, a lock is
   * extended as soon as a third of its validity is used, which is earlier for every sensible value.
   * Default 500.
   */
  readonly automaticExtensionThreshold: number
  /**
   * How long an acquisition may take as a whole; 0 tries once. Default: as long as `retryCount`
   * allows.
   */
  readonly timeout?: number
  /**
   * How long one node may take to answer. Default: a fiftieth of the duration, between 50 and 250.
   */
  readonly nodeTimeout?: number
  /**
   * How long to go on without a reachable quorum where neither `timeout` nor `retryCount` limits
   * it. Default 3000.
   */
  readonly unreachableTimeout?: number
  /** Whether locks get a fencing token. Default true. */
  readonly fencing?: boolean
  /** How long nodes remember fencing tokens once no client is connected. Default 120000; what is below 30 s counts
   * as 30 s. Raise it where the nodes' clocks may differ by more than a minute. */
  readonly fenceRetention?: number
  /**
   * Whether the lock is extended by itself until it is released. Default false, but true for
   * `using`.
   */
  readonly autoExtend?: boolean
  /** For how long, at most, a lock extends itself. Default 24 hours. */
  readonly maxHold?: number
  /**
   * What is done about nodes that may have forgotten locks. Default auto: their votes do not count
   * until every lock that they may have forgotten is over; a cluster in which no node has a history
   * is used at once, and a single node always. `strict`: without these exceptions. The same for all
   * locks of a manager.
   */
  readonly restartGuard?: 'auto' | 'strict' | 'off'
  /**
   * Whether a node whose clock was set forward is held back like one that has forgotten. Default
   * true; of no use with one node. The same for all locks of a manager.
   */
  readonly clockGuard?: boolean
  /**
   * The longest duration that a lock may have; a longer one is refused. A node that may have
   * forgotten locks is held back for that time. Default: no limit; then the longest duration counts
   * that this manager has asked for or that others have noted on the nodes. The same for all who
   * use the nodes.
   */
  readonly maxTtl?: number
  /**
   * How much longer than its duration the nodes keep a lock that is lost instead of released, or
   * whose process died: for work that goes on after the end of its lock. Default 0. A release frees
   * at once, also after a loss.
   */
  readonly lockDelay?: number
  /**
   * How long the lock is kept from others, at least, from its acquisition on, however soon it is
   * released: for a job that several machines begin by clocks that differ. Default 0. It binds
   * releases alone (that of `using` among them), so let the lock extend itself if its duration is
   * shorter.
   */
  readonly minHold?: number
  /**
   * How a caller that waits learns that the lock is free. Default push: it takes a place in a queue
   * on every node, over a connection of its own, and the nodes call it when its turn comes; a node
   * that cannot do that is asked again after each delay. `poll`: all nodes are asked again after
   * each delay, and no place is taken.
   */
  readonly wait: 'push' | 'poll'
  /**
   * Whether callers get the lock in the order in which they came, over all processes and languages.
   * Default false: then one that has just come may get it before others that wait. It holds among
   * callers with `fair`, needs one more round trip where the lock is free, and is for one resource
   * and `wait: 'push'`.
   */
  readonly fair: boolean
  /**
   * What becomes of an acquisition that can reach no quorum. Default raise: it rejects. With
   * `proceed` the work goes on **without the lock**, under a lock that is `degraded` and has no
   * token: only for locks that save work and protect nothing.
   */
  readonly onUnreachable?: 'raise' | 'proceed'
  /**
   * What others are told of who holds these locks: words such as `{ service: 'billing' }`, to which
   * host and process id are added; 4 KiB at most. {@link Redlock.holder} and the errors of locks that
   * are refused to a Redlock with an owner show it. Default: nothing is told.
   */
  readonly owner?: Owner
}

/** The settings that are the same for all locks of a manager. */
export type GuardSettings = 'restartGuard' | 'clockGuard' | 'maxTtl' | 'owner'

/** What one acquisition may set beside the settings of its manager. */
export interface AcquireOptions extends Partial<Omit<Settings, GuardSettings>> {
  /**
   * Gives the wait up when it aborts: the operation rejects with its reason at once, and the nodes are
   * asked to delete its keys. One that answers has none a moment later (about a round trip); on one
   * that fails, they end with their duration.
   */
  readonly signal?: AbortSignal | undefined
}

/** Options after the check: the values for the native half, and the signal. */
export interface ReadOptions {
  given: NativeSettings | undefined
  signal: AbortSignal | undefined
}

/** The settings of a manager after the check. */
export interface GivenSettings {
  readonly given: NativeSettings
  readonly owner: Record<string, string> | undefined
}

/** The settings of the native half. */
const listed = native.defaults()

/** The defaults, from their one home. */
export const defaultSettings: Readonly<Settings> = Object.freeze({
  automaticExtensionThreshold: 500,
  ...Object.fromEntries(
    listed.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
  ),
} as Settings & { ttl?: number })

/** The options of one call. */
export function readOptions(options: AcquireOptions | null | undefined): ReadOptions {
  if (options === undefined || options === null) return { given: undefined, signal: undefined }
  const { given, signal } = pick(options)
  refuseOwner(options)
  const isSet = Object.keys(given).length > 0
  return { given: isSet ? given : undefined, signal }
}

/** The settings of a manager: for the native half, and with the defaults for users. */
export function readSettings(
  settings: Partial<Settings> | null | undefined,
): GivenSettings & { all: Settings } {
  const { given } = pick(settings ?? {})
  const owner = readOwner(settings?.owner)
  const told = Object.entries(settings ?? {}).filter(
    ([name, value]) => (name in KINDS || name === 'owner') && value != null,
  )
  const { ttl: _, ...base } = defaultSettings as Settings & { ttl?: number }
  return { given, owner, all: Object.freeze({ ...base, ...Object.fromEntries(told) }) }
}

/** One resource or several, as a list. The core decides which names are valid. */
export function readResources(resources: unknown): string[] {
  const list: unknown = typeof resources === 'string' ? [resources] : resources
  if (!Array.isArray(list)) {
    throw wrongType(`resources must be a string or an array of strings, not ${describe(resources)}`)
  }
  for (const name of list as unknown[]) {
    if (typeof name !== 'string')
      throw wrongType(`a resource must be a string, not ${describe(name)}`)
    // Two different names with lone surrogates could become the same name on the nodes.
    if (LONE_SURROGATE.test(name))
      throw new ConfigError('a resource name must be well-formed Unicode')
  }
  // A copy: the lock keeps it, and its user may change the array.
  return [...(list as string[])]
}

/** The name of one resource. */
export function readResource(resource: unknown): string {
  const [name, ...others] = readResources(resource)
  if (name === undefined || others.length > 0)
    throw wrongType('this call is about one resource, which must be a string')
  return name
}

/** The value of a lock that is taken over. */
export function readValue(value: unknown): string {
  if (typeof value === 'string') return value
  throw wrongType(`the value of a lock must be a string, not ${describe(value)}`)
}

/** Nobody may replace the scripts that run on the nodes. */
export function checkScripts(scripts: unknown): void {
  const given = typeof scripts === 'object' && scripts !== null ? Object.values(scripts) : [scripts]
  if (given.every((script) => script === undefined || script === null)) return
  throw new ConfigError(
    'the scripts that run on the nodes cannot be replaced; leave the third argument out',
  )
}

/** A duration in milliseconds. */
export function readDuration(duration: unknown): number {
  if (typeof duration !== 'number') {
    throw wrongType(
      `Duration must be an integer value in milliseconds. It is ${describe(duration)}`,
    )
  }
  return duration
}

function pick(options: object): { given: NativeSettings; signal: AbortSignal | undefined } {
  if (typeof options !== 'object' || Array.isArray(options)) {
    throw wrongType(`settings must be an object, not ${describe(options)}`)
  }
  const given: NativeSettings = {}
  for (const [name, kind] of Object.entries(KINDS)) {
    const value = (options as Record<string, unknown>)[name]
    if (value === undefined || value === null) continue
    if (typeof value !== kind) throw wrongType(`${name} must be a ${kind}, not ${describe(value)}`)
    if (name !== 'automaticExtensionThreshold') given[name] = value as number | boolean | string
  }
  // A value that was copied from the defaults is no mistake.
  const said = Object.entries(options).filter(([name, value]) => value !== DEFAULTS[name])
  warnOfUnknown(Object.fromEntries(said), KNOWN)
  return { given, signal: readSignal((options as AcquireOptions).signal) }
}

function readSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal === null) return undefined
  // By its shape, so that signals of polyfills and of other realms are accepted.
  const shape = signal as Partial<AbortSignal>
  if (typeof shape !== 'object' || typeof shape.aborted !== 'boolean' || !shape.addEventListener) {
    throw wrongType(`signal must be an AbortSignal, not ${describe(signal)}`)
  }
  return signal as AbortSignal
}

/** The `typeof` of each setting's values; one setting of node-redlock's is not known to the native half. */
const KINDS: Readonly<Record<string, string>> = (() => {
  const kinds = listed.filter(({ name }) => name !== 'ttl').map(({ name, kind }) => [name, kind])
  kinds.splice(1, 0, ['automaticExtensionThreshold', 'number'])
  return Object.fromEntries(kinds)
})()

const DEFAULTS = defaultSettings as unknown as Record<string, unknown>

const KNOWN = [...Object.keys(KINDS), 'owner', 'signal']

const LONE_SURROGATE = /\p{Surrogate}/u
