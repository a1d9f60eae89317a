// The end of an `await using` block. Owns how a class gets its Symbol.asyncDispose.

/** Where the symbol is a polyfill's, it may come later than this module: ask at every making. */
export function defineAsyncDispose<T extends object>(
  prototype: T,
  dispose: (this: T) => Promise<void>,
): void {
  const symbol: symbol | undefined = Symbol.asyncDispose
  if (symbol === undefined || symbol in prototype) return
  Object.defineProperty(prototype, symbol, { value: dispose, configurable: true, writable: true })
}
