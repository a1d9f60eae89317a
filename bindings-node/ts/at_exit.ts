// Calls what each copy of this package has to do at the exit of the process. Owns the one listener that all copies
// share: a test program loads one for each of its files, or more.

/** What the copies share. */
interface Shared {
  readonly calls: (() => void)[]
  readonly listener: () => void
}

/** Has `call` called when the process exits; in a worker thread, when that ends. */
export function atExit(call: () => void): void {
  const shared = sharedOfProcess()
  shared.calls.push(call)
  // A program may have removed all listeners since.
  if (!process.listeners('exit').includes(shared.listener)) process.on('exit', shared.listener)
}

function sharedOfProcess(): Shared {
  const process_ = process as unknown as Record<symbol, Shared | undefined>
  // Where nothing can be added to it, each copy has its own.
  if (!Object.isExtensible(process)) return process_[SHARED] ?? share()
  return (process_[SHARED] ??= share())
}

function share(): Shared {
  const calls: (() => void)[] = []
  const listener = (): void => {
    for (const call of calls) call()
  }
  return { calls, listener }
}

/** Where the copies find it. */
const SHARED = Symbol.for('quorlock.atExit')
