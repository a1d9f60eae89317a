// Listens to the AbortSignals that users pass. Owns the rule of one listener per signal: many waits may share
// one signal, and Node warns of a leak at the eleventh listener.

import { throwUncaught } from './event_loop'

/** The one listener of a signal, and the callbacks that it calls. */
interface Listening {
  callbacks: Set<() => void>
  stop: () => void
}

const signals = new WeakMap<AbortSignal, Listening>()

/** Calls `callback` when `signal` aborts, until the returned function is called. */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const listening = signals.get(signal) ?? listen(signal)
  // A new function, so that the same callback can be registered twice.
  const own = (): void => callback()
  listening.callbacks.add(own)
  return () => {
    const isLast = listening.callbacks.delete(own) && listening.callbacks.size === 0
    if (isLast) listening.stop()
  }
}

/** Why a signal aborted; signals of polyfills have no reason. */
export function reasonOf(signal: AbortSignal): unknown {
  return (signal.reason as unknown) ?? new DOMException('This operation was aborted', 'AbortError')
}

/** Settles as `promise` does, or rejects with the reason of `signal` if that aborts first. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const unlisten = onAbort(signal, () => {
      unlisten()
      reject(reasonOf(signal) as Error)
    })
    void promise.then(resolve, reject).finally(unlisten)
  })
}

function listen(signal: AbortSignal): Listening {
  const callbacks = new Set<() => void>()
  const tell = (): void => {
    for (const each of [...callbacks]) each()
  }
  const stop = (): void => {
    signals.delete(signal)
    try {
      signal.removeEventListener('abort', tell)
    } catch (thrown) {
      // The signal of a polyfill may throw. The caller that waits gets its result all the same.
      throwUncaught(thrown)
    }
  }
  const listening = { callbacks, stop }
  signal.addEventListener('abort', tell)
  signals.set(signal, listening)
  return listening
}
