// Where the package's module is that loads the native half, for tests that stop between the two halves.
import { fileURLToPath } from 'node:url'

/** A path for `require`. */
export const nativeHalf = fileURLToPath(
  new URL('../../../bindings-node/dist/native.js', import.meta.url),
)
