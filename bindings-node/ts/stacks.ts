// Gives an error that this package throws a stack trace that begins at the user's call, or none
// where no line of code explains it. Owns how that is done; knows no class of errors.

/**
 * The error that `make` makes, with a stack that begins at the caller of `method`: how the error was created
 * helps nobody.
 */
export function withStackBelow<T extends Error>(
  method: (...given: never[]) => T,
  make: () => T,
): T {
  if (Error.captureStackTrace === undefined) return make()
  // Captured once: that takes longer than all the rest of an error, and thousands may fail at once.
  const error = withoutStack(make)
  Error.captureStackTrace(error, method)
  return error
}

/** What `make` makes, without stacks: a node's vote, for example, has no line of code that explains it. */
export function withoutStack<T>(make: () => T): T {
  const { stackTraceLimit } = Error
  // False, and no exception, where the program has frozen Error.
  if (!Reflect.set(Error, 'stackTraceLimit', 0)) return make()
  try {
    return make()
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}
