// The result of a release. Owns only the nodes' answers, including those of slow nodes.

import {
  type ExecutionResult,
  type ExecutionStats,
  lateVotes,
  type LockVote,
  statsOf,
} from './stats'

/** What became of a lock that was released. */
export class ReleaseResult implements ExecutionResult {
  /**
   * `released`: held until then. `unknown`: too few nodes answered to tell; they are asked again in
   * the background. A lock that was over before rejects with {@link LeaseLostError} instead.
   */
  readonly outcome: 'released' | 'unknown'
  readonly #look: () => LockVote[]
  readonly #patience: number
  #attempts: ReadonlyArray<Promise<ExecutionStats>> | undefined

  /** @internal */
  constructor(outcome: 'released' | 'unknown', look: () => LockVote[], patience: number) {
    this.outcome = outcome
    this.#look = look
    this.#patience = patience
  }

  /** What every node has answered by now. */
  get votes(): readonly LockVote[] {
    return this.#look()
  }

  /**
   * The statistics of the one try, once every node has answered or had its time. None of the
   * promises rejects.
   */
  get attempts(): ReadonlyArray<Promise<ExecutionStats>> {
    this.#attempts ??= [lateVotes(this.#look, this.#patience, true).then(statsOf)]
    return this.#attempts
  }
}
