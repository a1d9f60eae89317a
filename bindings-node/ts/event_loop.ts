// The clock and the timers of the event loop as they were when this package was loaded: tests replace them by
// fake ones, for which no lock must wait. Owns what is done where they were fake by then.

import { performance } from 'node:perf_hooks'
import * as timers from 'node:timers'

export const { clearInterval, clearTimeout, setInterval, setTimeout } = timers
const { setImmediate } = timers
const { nextTick } = process

/** Milliseconds since the process was started. */
export const uptime = performance.now.bind(performance)

// Fake ones do not call.
let isTickReal = false
let isImmediateReal = false
nextTick(() => (isTickReal = true))
setImmediate(() => (isImmediateReal = true))

/** Calls `callback` when what runs now and the promises that it has settled are done. */
export function atEndOfTurn(callback: () => void): void {
  if (isTickReal) nextTick(callback)
  else void Promise.resolve().then(callback)
}

/** Whether {@link inNextTurn} is certain to call. */
export function hasNextTurn(): boolean {
  return isImmediateReal
}

/** Calls `callback` after what else the event loop has to do. */
export function inNextTurn(callback: () => void): void {
  setImmediate(callback)
}

/** Lets an exception of a user's code be uncaught, without an end to what has called it. */
export function throwUncaught(thrown: unknown): void {
  atEndOfTurn(() => {
    throw thrown
  })
}
