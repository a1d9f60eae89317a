// Calls what each copy of this package has to do at the exit of the process. Owns the one listener that all copies
// share: a test program loads one for each of its files, or more.

/** Has `call` called when the process exits; in a worker thread, when that ends. */
export function atExit(call: () => void): void {
  const shared = process as unknown as Record<symbol, ((call: () => void) => void) | undefined>
  shared[REGISTER] ??= listen()
  shared[REGISTER](call)
}

function listen(): (call: () => void) => void {
  const calls: (() => void)[] = []
  process.once('exit', () => {
    for (const call of calls) call()
  })
  return (call) => void calls.push(call)
}

/** Where the copies find it. */
const REGISTER = Symbol.for('quorlock.atExit')
