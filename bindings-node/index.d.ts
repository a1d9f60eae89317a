// The types of the CommonJS entry: the class itself, which carries every other name.
import * as api from './dist/api.js'

declare const Redlock: typeof api.Redlock & typeof api & { readonly default: typeof api.Redlock }
type Redlock = api.Redlock
declare namespace Redlock {
  type AcquireOptions = api.AcquireOptions
  type Client = api.Client
  type ConfigError = api.ConfigError
  type ErrorDetails = api.ErrorDetails
  type ExecutionError = api.ExecutionError
  type ExecutionResult = api.ExecutionResult
  type ExecutionStats = api.ExecutionStats
  type LeaseLostError = api.LeaseLostError
  type Lock = api.Lock
  type LockError = api.LockError
  type LockNotHeldError = api.LockNotHeldError
  type LockVote = api.LockVote
  type NodeAddress = api.NodeAddress
  type NodeError = api.NodeError
  type NodeStatus = api.NodeStatus
  type QuorumUnreachableError = api.QuorumUnreachableError
  type Redlock = api.Redlock
  type RedlockAbortSignal = api.RedlockAbortSignal
  type ReleaseResult = api.ReleaseResult
  type ResourceLockedError = api.ResourceLockedError
  type Routine<T> = api.Routine<T>
  type Settings = api.Settings
  type UsingContext = api.UsingContext
  type Warning = api.Warning
}
export = Redlock
