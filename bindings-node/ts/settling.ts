// Lets the function that ends an instrumentation (otel.ts) wait for the events of what has happened
// before, which come in a later turn of the event loop. Owns how long it waits, and that it keeps
// the process alive for a moment only.

import { afterAlive } from './bridge'
import { after } from './event_loop'

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

  /**
   * Resolves when everything was told: after one second at the latest, or once nothing else keeps the process
   * alive.
   */
  async wait(): Promise<void> {
    if (this.#isSettled()) return
    await new Promise<void>((resolve) => {
      // Events keep no process alive: those that were posted before are told during this moment.
      const cancels = [afterAlive(MOMENT, () => {}), after(PATIENCE, () => end())]
      const end = (): void => {
        for (const cancel of cancels) cancel()
        waiting.delete(end)
        if (waiting.size === 0) process.off('beforeExit', endAll)
        this.#end = undefined
        resolve()
      }
      if (waiting.size === 0) process.on('beforeExit', endAll)
      waiting.add(end)
      this.#end = end
    })
  }
}

/** What ends each wait of this process. */
const waiting = new Set<() => void>()

/** Otherwise the process would end while its caller still waits. */
function endAll(): void {
  for (const end of [...waiting]) end()
}

/** In milliseconds. */
const MOMENT = 50
const PATIENCE = 1000
