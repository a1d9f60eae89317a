// Waits at an end for what is under way: events come in a later turn of the event loop. Owns how long.

import { clearTimeout, setTimeout } from 'node:timers'

/** Waits until everything was told. */
export class Settling {
  readonly #isSettled: () => boolean
  #end: (() => void) | undefined

  constructor(isSettled: () => boolean) {
    this.#isSettled = isSettled
  }

  /** To be called when something was told. */
  check(): void {
    if (this.#end !== undefined && this.#isSettled()) this.#end()
  }

  /** Resolves when everything was told: after one second at the latest. */
  async wait(): Promise<void> {
    if (this.#isSettled()) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => end(), PATIENCE)
      const end = (): void => {
        clearTimeout(timer)
        this.#end = undefined
        resolve()
      }
      this.#end = end
    })
  }
}

/** In milliseconds. */
const PATIENCE = 1000
