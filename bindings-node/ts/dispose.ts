// Defines Symbol.asyncDispose on classes, for `await using`. Owns how a polyfill's symbol is found.

/**
 * A polyfill may define the symbol later than this module is loaded: it is looked up for every new object.
 */
export function defineAsyncDispose<T extends object>(
  prototype: T,
  dispose: (this: T) => Promise<void>,
): void {
  const symbol: symbol | undefined = Symbol.asyncDispose
  if (symbol === undefined || symbol in prototype) return
  Object.defineProperty(prototype, symbol, { value: dispose, configurable: true, writable: true })
}
