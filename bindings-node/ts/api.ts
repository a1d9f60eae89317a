// The list of what the package exports. Owns nothing else.

export type { NodeAddress } from './address'
export {
  ConfigError,
  type ErrorDetails,
  ExecutionError,
  LeaseLostError,
  LockError,
  LockNotHeldError,
  NodeError,
  QuorumUnreachableError,
  ResourceLockedError,
  StaleTokenError,
} from './errors'
export { FencedRedis, type Word } from './fencing'
export { Holder, type Owner } from './holder'
export { Lock } from './lock'
export type { RedlockAbortSignal } from './loss'
export { type AcquireOptions, defaultSettings, type Settings } from './options'
export { type NodeStatus } from './node_status'
export type { RedlockEvent, RedlockEvents } from './events'
export type { FigureHistogram, NodeFigures, RedlockStats } from './figures'
export { type Warning } from './process_warnings'
export { Redlock } from './redlock'
export type { ReleaseResult } from './release'
export { Sequencer } from './sequencer'
export type { Client, ExecutionResult, ExecutionStats, LockVote } from './stats'
export type { Routine, UsingContext } from './using'
