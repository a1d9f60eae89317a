// The ESM entry: the same classes as in CommonJS, so that `instanceof` holds across both.
export {
  ConfigError,
  ExecutionError,
  FencedRedis,
  Holder,
  LeaseLostError,
  Lock,
  LockError,
  LockNotHeldError,
  NodeError,
  QuorumUnreachableError,
  Redlock,
  Redlock as default,
  ResourceLockedError,
  Sequencer,
  StaleTokenError,
  defaultSettings,
} from './dist/api.js'
