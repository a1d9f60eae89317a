// Runs a routine under a lock that extends itself. Owns what happens to the routine's result when the lock is
// lost.

import { ref, unref } from './bridge'
import { describe, LeaseLostError, wrongType } from './errors'
import type { Lock } from './lock'
import { abortWith, type RedlockAbortSignal } from './loss'
import type { AcquireOptions } from './options'
import { onAbort, reasonOf } from './signals'

/** What a routine gets beside the signal. */
export interface UsingContext {
  /** The lock that is held. */
  readonly lock: Lock
}

/**
 * What runs under a lock. Its signal aborts when the lock is lost, or when the caller's own signal
 * does.
 */
export type Routine<T> = (signal: RedlockAbortSignal, context: UsingContext) => Promise<T> | T

/** What `using` was given behind the duration: options and a routine, or the routine alone. */
export function readRoutine<T>(
  optionsOrRoutine: AcquireOptions | Routine<T>,
  optionalRoutine: Routine<T> | undefined,
): { options: AcquireOptions; routine: Routine<T> } {
  const options = typeof optionsOrRoutine === 'function' ? {} : optionsOrRoutine
  const routine: unknown = optionalRoutine ?? optionsOrRoutine
  if (typeof routine !== 'function')
    throw wrongType(
      `using() needs a function to run, as its last argument, not ${describe(routine)}`,
    )
  return { options, routine: routine as Routine<T> }
}

/**
 * Runs `routine` under a lock, which it releases whatever happens. The caller's signal aborts the
 * routine's, too.
 */
export async function useLock<T>(
  acquire: (options: AcquireOptions) => Promise<Lock>,
  { options, routine }: { options: AcquireOptions; routine: Routine<T> },
): Promise<T> {
  const lock = await acquire({ ...options, autoExtend: options?.autoExtend ?? true })
  const outer = options?.signal ?? undefined
  const controller = new AbortController()
  const { signal: lost } = lock
  const unlink = [link(lost, controller), link(outer, controller)]
  // Also for a routine that waits only for its signal.
  ref()
  let outcome: { value: T } | { thrown: unknown }
  try {
    outcome = { value: await routine(controller.signal, { lock }) }
  } catch (thrown) {
    outcome = { thrown }
  }
  const ending = await finish(lock)
  for (const each of unlink) each()
  unref()
  if ('thrown' in outcome) throw attach(outcome.thrown, ending)
  if (ending !== undefined) throw ending
  return outcome.value
}

/** Why the routine may not have been alone, if that is so. */
async function finish(lock: Lock): Promise<Error | undefined> {
  const lost = lock.signal.error
  if (lock._isReleased) return lost
  try {
    await lock.release()
    return lost
  } catch (error) {
    return lost ?? (error instanceof Error ? error : new LeaseLostError(String(error)))
  }
}

/**
 * The routine's own error is what the caller gets; why the lock was lost becomes its cause, if it has none.
 */
function attach(thrown: unknown, ending: Error | undefined): unknown {
  const takes = thrown instanceof Error && Object.isExtensible(thrown) && !('cause' in thrown)
  if (ending !== undefined && takes && thrown !== ending) {
    Object.defineProperty(thrown, 'cause', { value: ending, configurable: true, writable: true })
  }
  return thrown
}

function link(from: AbortSignal | undefined, to: AbortController): () => void {
  if (from === undefined) return () => {}
  const abort = (): void => abortWith(to, reasonOf(from))
  if (from.aborted) abort()
  return onAbort(from, abort)
}
