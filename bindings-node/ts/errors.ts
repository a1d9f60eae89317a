// The error classes that users catch, and how they are made from the native half's failures. The core decides
// the kind of each error.

import type { ExecutionStats, LockVote } from './stats'

/** The fields of an error besides its message. */
export interface ErrorDetails {
  /** A stable name for programs, for example `LEASE_LOST`. */
  code?: string | undefined
  /** The resources that it is about. */
  resources?: readonly string[] | undefined
  /** How many tries were begun. */
  attemptCount?: number | undefined
  /** How long the operation took, in milliseconds. */
  elapsed?: number | undefined
  /** What every node did in the last try. */
  votes?: readonly LockVote[] | undefined
}

/**
 * The base of every error of this library.
 *
 * @example
 * ```js
 * try {
 *   await redlock.acquire('invoice:42', 5000)
 * } catch (error) {
 *   if (error instanceof LockError) console.error(error.code, error.message)
 * }
 * ```
 */
export class LockError extends Error {
  /** A stable name for programs, the same in every language: for example `QUORUM_UNREACHABLE`. */
  readonly code: string
  /** The resources that it is about; empty for an error of configuration. */
  readonly resources: readonly string[]
  /** How many tries were begun. */
  readonly attemptCount: number
  /** How long the operation took, in milliseconds. */
  readonly elapsed: number
  readonly #votes: readonly LockVote[]

  constructor(message: string, details: ErrorDetails = {}) {
    super(message)
    this.code = details.code ?? 'LOCK_ERROR'
    this.resources = details.resources ?? []
    this.attemptCount = details.attemptCount ?? 0
    this.elapsed = details.elapsed ?? 0
    this.#votes = details.votes ?? []
  }

  /** What every node did in the last try; empty where no node was asked. */
  get votes(): readonly LockVote[] {
    // What only inherits from an error, or is a Proxy of one, has none: loggers read all properties of such.
    return #votes in this ? this.#votes : []
  }

  /**
   * An argument of the wrong type is reported as a `TypeError`, which is a {@link ConfigError},
   * too.
   */
  static override [Symbol.hasInstance](value: unknown): boolean {
    const isOwn: boolean = Function.prototype[Symbol.hasInstance].call(this, value)
    return isOwn || ((this === LockError || this === ConfigError) && isConfigTypeError(value))
  }
}

/** An operation found no quorum of nodes. node-redlock 5 rejects with a class of this name. */
export class ExecutionError extends LockError {
  #attempts: Attempts

  /**
   * `attempts`: the statistics of every try, or a function that makes them when they are asked for.
   */
  constructor(message: string, attempts: Attempts = [], details: ErrorDetails = {}) {
    super(message, details)
    this.#attempts = attempts
  }

  /** The statistics of every try, oldest first; the latest 16. None of the promises rejects. */
  get attempts(): ReadonlyArray<Promise<ExecutionStats>> {
    if (!(#attempts in this)) return []
    if (typeof this.#attempts === 'function') this.#attempts = this.#attempts()
    return this.#attempts
  }
}

/**
 * Another client holds a resource.
 *
 * `acquire` and `using` reject with it when a majority of the nodes refused; there, `name` is
 * `'ExecutionError'`, because users of node-redlock tell it by that name. It is also the vote of a
 * single node against a try.
 */
export class ResourceLockedError extends ExecutionError {
  constructor(message: string, attempts: Attempts = [], details: ErrorDetails = {}) {
    super(message, attempts, { code: 'LOCK_NOT_ACQUIRED', ...details })
  }
}

/**
 * Too many nodes failed for any verdict: not contention. `votes` and the message tell what is wrong
 * with each.
 */
export class QuorumUnreachableError extends ExecutionError {
  constructor(message: string, attempts: Attempts = [], details: ErrorDetails = {}) {
    super(message, attempts, { code: 'QUORUM_UNREACHABLE', ...details })
  }
}

/**
 * The lease is over or taken by another: work under it since then may have overlapped another
 * holder's.
 */
export class LeaseLostError extends ExecutionError {
  constructor(message: string, attempts: Attempts = [], details: ErrorDetails = {}) {
    super(message, attempts, { code: 'LEASE_LOST', ...details })
  }
}

/** There is no lease to release, extend or check: it was released before. */
export class LockNotHeldError extends ExecutionError {
  constructor(message: string, attempts: Attempts = [], details: ErrorDetails = {}) {
    super(message, attempts, { code: 'LOCK_NOT_HELD', ...details })
  }
}

/** A setting or argument is wrong. Where its type is wrong, the error is a `TypeError`, too. */
export class ConfigError extends LockError {
  constructor(message: string, details: ErrorDetails = {}) {
    super(message, { code: 'CONFIG', ...details })
  }
}

/** A fault of one node: its vote against a try. `code` tells which, for example `TIMED_OUT`. */
export class NodeError extends LockError {
  /** Where the node is, without a password. */
  readonly address: string

  constructor(message: string, address: string, details: ErrorDetails = {}) {
    super(message, details)
    this.address = address
  }
}

/**
 * A later holder has written: this write was refused by a fence, and nothing was changed. The lock is
 * over: stop, and do not try again.
 */
export class StaleTokenError extends LockError {
  constructor(
    resource: string,
    /** The fencing token of the write. */
    readonly token: number,
    /** The highest fencing token that was seen. */
    readonly highest: number,
  ) {
    super(
      `the write to '${resource}' with the fencing token ${token} was refused: a later holder has ` +
        `written with ${highest}; this lock is over, so stop`,
      { code: 'STALE_TOKEN', resources: [resource] },
    )
  }
}

/** A {@link ConfigError} and {@link LockError} by `instanceof`, a `TypeError` by inheritance. */
class ConfigTypeError extends TypeError {
  readonly code = 'CONFIG'
  readonly resources: readonly string[] = []
  readonly attemptCount = 0
  readonly elapsed = 0
  declare readonly votes: readonly LockVote[]
}

/** The statistics of tries, or a function that makes them. */
export type Attempts =
  ReadonlyArray<Promise<ExecutionStats>> | (() => ReadonlyArray<Promise<ExecutionStats>>)

/** An error for an argument of the wrong type: a `ConfigError` and a `TypeError`. */
export function wrongType(message: string): ConfigError {
  const error: unknown = new ConfigTypeError(message)
  return error as ConfigError
}

/** A value that a user gave, as shown in messages: without anything that may be secret. */
export function describe(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'bigint') return 'a bigint'
  if (typeof value !== 'object') return typeof value === 'string' ? 'a string' : String(value)
  const name = (value as object).constructor?.name
  return name === undefined || name === 'Object' ? 'an object' : `an object of class ${name}`
}

function isConfigTypeError(value: unknown): boolean {
  return typeof value === 'object' && value !== null && value instanceof ConfigTypeError
}

const named: ReadonlyArray<[{ prototype: Error }, string]> = [
  [LockError, 'LockError'],
  [ExecutionError, 'ExecutionError'],
  [ResourceLockedError, 'ResourceLockedError'],
  [QuorumUnreachableError, 'QuorumUnreachableError'],
  [LeaseLostError, 'LeaseLostError'],
  [LockNotHeldError, 'LockNotHeldError'],
  [ConfigError, 'ConfigError'],
  [ConfigTypeError, 'ConfigError'],
  [NodeError, 'NodeError'],
  [StaleTokenError, 'StaleTokenError'],
]
for (const [{ prototype }, name] of named) {
  Object.defineProperty(prototype, 'name', { value: name, writable: true, configurable: true })
}
Object.defineProperty(ConfigTypeError.prototype, 'votes', { value: [], configurable: true })
