// A held lock, as users see it. Owns the properties that they read; every operation goes through its
// Redlock's nodes.

import { describe, wrongType } from './errors'
import { inspect } from 'node:util'

import { run, type Settled } from './bridge'
import { defineAsyncDispose } from './dispose'
import type { Holder } from './holder'
import { LossWatch, type RedlockAbortSignal } from './loss'
import { native, type NativeLease, type NodeVote } from './native'
import { readDuration } from './options'
import type { Redlock } from './redlock'
import { ReleaseResult } from './release'
import { type Sequencer, sequencerOf } from './sequencer'
import { type ExecutionStats, lateVotes, type LockVote, statsOf } from './stats'

/** A won lease, from which the user's lock is made. */
export interface Won {
  readonly lease: NativeLease
  readonly resources: string[]
  readonly value: string
  /** Whether it extends itself. */
  readonly isExtended: boolean
}

/**
 * A lock that is held, as {@link Redlock.acquire} gives it.
 *
 * @example
 * ```js
 * const lock = await redlock.acquire('invoice:42', 5000)
 * try {
 *   await pay(lock.fencingToken)
 * } finally {
 *   await lock.release()
 * }
 * ```
 */
export class Lock {
  /** Whose lock it is. */
  readonly redlock: Redlock
  /** What is locked. */
  readonly resources: string[]
  /**
   * The holder id, which the keys hold: a program that knows it can take the lock over with {@link
   * Redlock.lease}.
   */
  readonly value: string
  #lease: NativeLease
  #loss: LossWatch | undefined
  #attempts: ReadonlyArray<Promise<ExecutionStats>> | undefined
  /**
   * The last known value; `#claimed` is what the user said for a lock taken over, until a node has confirmed
   * it.
   */
  #expiration = 0
  #claimed = 0
  #isReleased = false
  #isExtended = false;

  /**
   * Releases the lock at the end of an `await using` block, unless that was done. The block rejects
   * with {@link LeaseLostError} if the lock was lost.
   *
   * If the body has thrown as well, JavaScript makes one error of the two: a `SuppressedError`, whose
   * `error` is the `LeaseLostError` and whose `suppressed` is what the body has thrown.
   * {@link Redlock.using} rejects with what the body has thrown, with the loss as its `cause`.
   */
  declare [Symbol.asyncDispose]: () => Promise<void>

  /** Takes over a lock by its value, as {@link Redlock.lease} does. */
  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts?: ReadonlyArray<Promise<ExecutionStats>>,
    expiration?: number,
  )
  /** @internal */
  constructor(redlock: Redlock, won: Won)
  constructor(
    redlock: Redlock,
    resources: string[] | Won,
    value?: string,
    attempts?: ReadonlyArray<Promise<ExecutionStats>>,
    expiration = 0,
  ) {
    const isWon = typeof resources === 'object' && resources !== null && 'lease' in resources
    const won = isWon ? resources : redlock._adopt(resources, value)
    this.redlock = redlock
    this.resources = won.resources
    this.value = won.value
    this.#lease = won.lease
    this.#attempts = attempts
    this.#claimed = expiration
    defineAsyncDispose(Lock.prototype, dispose)
    if (won.isExtended) this.#watch(true)
  }

  /**
   * A number that grows with every acquisition of the resource: what the lock protects should
   * refuse a smaller one. Undefined where fencing is off, and for a lease taken over by its value until
   * `check()` or `extend()` has confirmed it; after that it is no less than the number of the
   * acquisition, and more once others have asked for the lock. Throws a
   * {@link QuorumUnreachableError} if the lock is {@link degraded}.
   */
  get fencingToken(): number | undefined {
    this.#refuseDegraded()
    return native.fencingToken(this.#lease) ?? undefined
  }

  /**
   * The lock as a text that can be handed to others, which {@link Redlock.verify} can tell about after
   * {@link recordSequencer}; undefined without a {@link fencingToken}. Throws a
   * {@link QuorumUnreachableError} if the lock is {@link degraded}.
   */
  get sequencer(): Sequencer | undefined {
    this.#refuseDegraded()
    return sequencerOf(this.#lease)
  }

  /**
   * Whether it is **no lock at all**: no quorum could be reached, and `onUnreachable: 'proceed'` lets
   * the work go on without it. It has no validity and no fencing token, and is never lost.
   */
  get degraded(): boolean {
    return native.degraded(this.#lease)
  }

  /**
   * How much longer the lock may be trusted, in milliseconds; 0 once it has ended.
   */
  get validity(): number {
    return native.validity(this.#lease)
  }

  /** Whether the lock may be trusted now. */
  get isValid(): boolean {
    return this.validity > 0
  }

  /**
   * When the validity ends, in milliseconds of `Date.now()`; 0 once it has ended. {@link validity}
   * does without the wall clock.
   */
  get expiration(): number {
    const { validity } = this
    if (validity <= 0) return this.#isReleased || this.#claimed < Date.now() ? 0 : this.#claimed
    this.#claimed = 0
    const now = Math.floor(Date.now() + validity)
    // The two clocks tick at different moments: the value must not change by their grain alone.
    if (Math.abs(now - this.#expiration) > CLOCK_GRAIN) this.#expiration = now
    return this.#expiration
  }

  /**
   * What every node did in the last try for the lock, with the votes that came late: that of its
   * acquisition, or the latest that was to extend it, by itself or by {@link extend}.
   */
  get votes(): readonly LockVote[] {
    return this.redlock._votes(native.votes(this.#lease), this.resources)
  }

  /**
   * The statistics of every try of the acquisition (or of the last {@link extend}), the last of which
   * are those of {@link votes} when they are first asked for. None of the promises rejects.
   */
  get attempts(): ReadonlyArray<Promise<ExecutionStats>> {
    if (this.#attempts === undefined) {
      const lost = this.#isExtended ? [] : this.#lostRounds()
      const stats = lost.map((votes) => Promise.resolve(statsOf(votes)))
      const last = lateVotes(() => [...this.votes], this.redlock._patience, true).then(statsOf)
      this.#attempts = [...stats, last]
    }
    return this.#attempts
  }

  /**
   * Aborts when the lock is lost, with a {@link LeaseLostError} as reason. Waits for the loss from
   * the first use on.
   */
  get signal(): RedlockAbortSignal {
    return this.#watch(false).signal
  }

  /**
   * Keeps the lock for `duration` milliseconds from now on, and resolves with this same lock. If more is left, the validity
   * gets shorter, but the servers keep the lock for what is left.
   *
   * Rejects with {@link LeaseLostError} if it has ended, with {@link QuorumUnreachableError} if too
   * few nodes answer (what is left of the validity stays good), and with {@link LockNotHeldError}
   * after a release.
   */
  async extend(duration: number): Promise<Lock> {
    const millis = readDuration(duration)
    const settled = await run((id) => native.extend(this.#lease, id, millis))
    this.redlock._eventSource.keep()
    if (settled.error !== undefined) {
      const { rounds, attempts } = settled.error
      const error = this.redlock._failure(settled.error, 'extend')
      // If this call made no try of its own, its votes have been reported before.
      if (attempts > 0) this.#reportRounds(rounds)
      throw error
    }
    this.#attempts = undefined
    this.#isExtended = true
    this.redlock._reports.late(() => [...this.votes])
    return this
  }

  /**
   * Asks the nodes whether they still hold the lock; resolves with its validity in milliseconds.
   *
   * Rejects with {@link LeaseLostError} if they do not, with {@link QuorumUnreachableError} if too
   * few answer to tell.
   */
  async check(): Promise<number> {
    const settled = await run((id) => native.check(this.#lease, id))
    if (settled.error !== undefined) throw this.redlock._failure(settled.error, 'other')
    return settled.value as number
  }

  /** Who holds the first of its resources by what the nodes say now: see {@link Redlock.holder}. */
  async holder(): Promise<Holder | undefined> {
    return await this.redlock.holder(this.resources[0] as string)
  }

  /**
   * Writes to the nodes which holder has the fencing token, so that {@link Redlock.verify} can tell;
   * again with each renewal, until the release. Resolves with whether a quorum has it; false with nodes
   * of `memory://`, which keep no records. Rejects if the lock is {@link degraded}.
   */
  async recordSequencer(): Promise<boolean> {
    this.#refuseDegraded()
    return (await run((id) => native.recordSequencer(this.#lease, id))).value as boolean
  }

  /**
   * Gives the lock back; resolves as soon as a quorum of nodes has answered.
   *
   * Rejects with {@link LeaseLostError} at once if the lock was over before, because the work under
   * it may have overlapped another holder's, and with {@link LockNotHeldError} if it was released
   * before. Earlier than `minHold` after the acquisition, the nodes keep the lock until then.
   */
  async release(): Promise<ReleaseResult> {
    this.#isReleased = true
    const settled = await run((id) => native.release(this.#lease, id))
    this.redlock._eventSource.keep()
    this.#loss?.end()
    const look = (): LockVote[] =>
      this.redlock._votes(native.releaseVotes(this.#lease), this.resources)
    const error = settled.error && this.redlock._failure(settled.error, 'other')
    this.redlock._reports.late(look)
    if (error !== undefined) throw this.#loss?.signal.error ?? error
    const outcome = settled.value === 'released' ? 'released' : 'unknown'
    return new ReleaseResult(outcome, look, this.redlock._patience)
  }

  [inspect.custom](): string {
    const names = this.resources.map((name) => `'${name}'`).join(', ')
    const nodes = this.votes
    const granted = nodes.filter(({ outcome }) => outcome === 'granted').length
    if (this.degraded && !this.#isReleased) return `<Lock ${names} degraded: not locked>`
    const state = this.#isReleased
      ? 'released'
      : `${(this.validity / 1000).toFixed(1)}s left ${granted}/${nodes.length} nodes`
    return `<Lock ${names} ${state}>`
  }

  /** @internal Emits the votes against the tries of the acquisition. */
  _report(): void {
    this.redlock._reports.rounds(() => this.#lostRounds())
    this.redlock._reports.late(() => [...this.votes])
  }

  /** @internal */
  get _isReleased(): boolean {
    return this.#isReleased
  }

  /** @internal Whether the end of its validity is told by itself. */
  get _isWatched(): boolean {
    return this.#loss !== undefined
  }

  #refuseDegraded(): void {
    const why = native.whyDegraded(this.#lease)
    if (why) throw this.redlock._failure(why, 'acquire')
  }

  #lostRounds(): LockVote[][] {
    return native.lostRounds(this.#lease).map((votes) => this.redlock._votes(votes, this.resources))
  }

  #reportRounds(rounds: readonly (readonly NodeVote[])[]): void {
    this.redlock._reports.rounds(() =>
      rounds.map((votes) => this.redlock._votes(votes, this.resources)),
    )
  }

  #watch(alive: boolean): LossWatch {
    if (this.#loss === undefined) {
      // Not the lock itself, so that it can be collected.
      const { redlock, resources } = this
      this.#loss = new LossWatch(this.#lease, alive, {
        errorOf: (failure) => {
          redlock._eventSource.keep()
          return redlock._failure(failure, 'other')
        },
        renewed: (votes) => {
          redlock._states.askLeftOut()
          redlock._reports.rounds(() => [redlock._votes(votes, resources)])
        },
      })
      abandoned.register(this, this.#loss)
    }
    return this.#loss
  }
}

/**
 * A lock that was collected without a release is no longer extended, and no longer keeps the process alive.
 */
const abandoned = new FinalizationRegistry<LossWatch>((loss) => loss.end())

async function dispose(this: Lock): Promise<void> {
  if (!this._isReleased) await this.release()
}

/** In milliseconds. */
const CLOCK_GRAIN = 2

/** Refuses what is no lock of this package. */
export function checkLock(lock: unknown): Lock {
  if (lock instanceof Lock) return lock
  throw wrongType(`a Lock is wanted, as acquire() gives it, not ${describe(lock)}`)
}

/**
 * Marks the lease as its caller's at the latest moment before the caller continues: what is not marked when the thread
 * ends is taken back.
 */
export async function deliver(lease: NativeLease): Promise<void> {
  // The caller's own continuation is added to the queue after this one.
  await undefined
  native.deliver(lease)
}

/** Gives back what an acquisition has won that nobody waits for any more. */
export function giveBack({ value, error }: Settled): void {
  if (error === undefined) native.withdraw(value as NativeLease)
}
