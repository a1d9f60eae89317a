// The ESM entry: the same classes as in CommonJS, so that `instanceof` holds across both.
import api from './dist/api.js'

export const {
  ConfigError,
  ExecutionError,
  LeaseLostError,
  Lock,
  LockError,
  LockNotHeldError,
  NodeError,
  QuorumUnreachableError,
  Redlock,
  ResourceLockedError,
  defaultSettings,
} = api
export default api.Redlock
