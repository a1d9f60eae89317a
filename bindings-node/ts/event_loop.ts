// The clock, the timers and the turns of the event loop, also where a test has replaced them by fake ones, for which no
// lock must wait: before this package was loaded, or later. Knows no lock.

import { executionAsyncResource } from 'node:async_hooks'
import * as timers from 'node:timers'

const { setImmediate } = timers
const { nextTick, uptime: seconds } = process

/** Milliseconds since the process was started. */
export function uptime(): number {
  return seconds() * 1000
}

/**
 * Calls `callback` after `millis` milliseconds, or after 24 days if that is less. The function that this returns cancels
 * the call. It does not keep the process alive.
 */
export function after(millis: number, callback: () => void): () => void {
  // No test replaces this one.
  const signal = AbortSignal.timeout(Math.min(Math.ceil(millis), LONGEST))
  const end = (): void => {
    signal.removeEventListener('abort', call)
    pending.delete(signal)
  }
  const call = (): void => {
    end()
    callback()
  }
  signal.addEventListener('abort', call)
  pending.add(signal)
  return end
}

/** No timer of Node lasts longer, in milliseconds. */
const LONGEST = 2 ** 31 - 1

/** A signal that nobody refers to would be collected before its time. */
const pending = new Set<AbortSignal>()

// A fake function never calls back, or the test calls back through it. Only Node itself calls back through a real one.
let isTickReal = false
let isImmediateReal = false
const ofTick = (): void => void (isTickReal = caller()?.callback === ofTick)
const immediate = setImmediate(() => (isImmediateReal = caller() === immediate))
nextTick(ofTick)

/** What Node calls the present function for. */
function caller(): { callback?: unknown } | undefined {
  return executionAsyncResource?.()
}

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
