// Emits the `error` events: one for every vote against a try. Owns when they are emitted; reads no votes
// while there is no listener.

import type { EventEmitter } from 'node:events'

import { throwUncaught } from './event_loop'
import { lateVotes, type LockVote } from './stats'

/** Emits to the listeners of one Redlock. */
export class Reports {
  readonly #emitter: EventEmitter
  readonly #patience: number

  /** `patience`: how long a node may take, at most, before it counts as silent; in milliseconds. */
  constructor(emitter: EventEmitter, patience: number) {
    this.#emitter = emitter
    this.#patience = patience
  }

  /** The votes of rounds that are over. */
  rounds(look: () => readonly (readonly LockVote[])[]): void {
    if (!this.#isHeard()) return
    for (const votes of look()) this.#emit(votes)
  }

  /** The votes of the last try, now and as they come. */
  late(look: () => LockVote[]): void {
    if (!this.#isHeard()) return
    const early = look()
    this.#emit(early)
    if (early.every(({ outcome }) => outcome !== 'missing')) return
    void lateVotes(look, this.#patience, false).then((votes) => {
      this.#emit(votes.filter((_, index) => early[index]?.outcome === 'missing'))
    })
  }

  #isHeard(): boolean {
    return this.#emitter.listenerCount('error') > 0
  }

  /** An exception of a listener is uncaught, as usual, but does not reach the operation. */
  #emit(votes: readonly LockVote[]): void {
    for (const { error } of votes) {
      if (error === undefined) continue
      try {
        this.#emitter.emit('error', error)
      } catch (thrown) {
        throwUncaught(thrown)
      }
    }
  }
}

/** How long statistics wait for a node's vote at most; in milliseconds. */
export const LONGEST_PATIENCE = 5000
