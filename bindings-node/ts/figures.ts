// The figures that `stats()` gives. Owns their types; the native half counts.

/** How often values fell into each bucket. */
export interface FigureHistogram {
  /** The upper bound of each bucket but the last, which has none. */
  readonly bounds: readonly number[]
  /** How many values fell into each bucket; one more than there are bounds. */
  readonly counts: readonly number[]
  /** How many values there were. */
  readonly count: number
  /** Their sum. */
  readonly sum: number
}

/** What was counted of one node. */
export interface NodeFigures {
  /** Where it is, without a password. */
  readonly address: string
  /** Its state now; see {@link NodeStatus}. */
  readonly state: string
  /** The time from a command to its answer, in seconds. */
  readonly latencySeconds: FigureHistogram
  /** How often it did not answer in time. */
  readonly timeouts: number
  /** How many seconds its clock is ahead of this machine's, once that is known. */
  readonly offsetSeconds?: number
}

/** What a {@link Redlock} has counted since it was made. */
export interface RedlockStats {
  /**
   * Acquisitions by how they ended: `acquired`, `not_acquired`, `timed_out`, `unreachable`, `cancelled`,
   * `error`, and `degraded` for those that went on without a quorum (and are not counted as `unreachable`).
   */
  readonly acquisitions: Readonly<Record<string, number>>
  /** How long the acquisitions took that were won, in seconds. */
  readonly acquireSeconds: FigureHistogram
  /** Rounds of acquisitions. */
  readonly rounds: number
  /** Rounds of those that were refused because another holds the lock. */
  readonly futileRounds: number
  /** How often a caller began to wait. */
  readonly waits: number
  /** What made callers that waited try again: `push`, `watch` or `timer`. */
  readonly wakes: Readonly<Record<string, number>>
  /** How many locks are held now. One that nobody renews or watches counts until it is collected. */
  readonly held: number
  /** How long locks were held that have ended, in seconds. */
  readonly holdSeconds: FigureHistogram
  /** How often a lock was prolonged, by itself or its holder. */
  readonly extensions: number
  /** How often a round that was to prolong one failed. */
  readonly failedExtensions: number
  /** The part of the validity that was left when a renewal was proved, from 0 to 1. */
  readonly renewalSlack: FigureHistogram
  /** Locks lost, by reason: `expired`, `gone`, `held-too-long`. */
  readonly losses: Readonly<Record<string, number>>
  /** Locks given back, by outcome: `released`, `expired`, `taken`, `unknown`, `abandoned`. */
  readonly releases: Readonly<Record<string, number>>
  /** The nodes, in the order given. */
  readonly nodes: readonly NodeFigures[]
}
