// The types of the CommonJS entry: the class itself, which carries every other name.
import * as api from './dist/api.js'

declare class Redlock extends api.Redlock {}
declare namespace Redlock {
  export type AcquireOptions = api.AcquireOptions
  export type Client = api.Client
  export import ConfigError = api.ConfigError
  export type ErrorDetails = api.ErrorDetails
  export import ExecutionError = api.ExecutionError
  export type ExecutionResult = api.ExecutionResult
  export type ExecutionStats = api.ExecutionStats
  export import FencedRedis = api.FencedRedis
  export type FigureHistogram = api.FigureHistogram
  export import Holder = api.Holder
  export import LeaseLostError = api.LeaseLostError
  export import Lock = api.Lock
  export import LockError = api.LockError
  export import LockNotHeldError = api.LockNotHeldError
  export type LockVote = api.LockVote
  export type NodeAddress = api.NodeAddress
  export import NodeError = api.NodeError
  export type NodeFigures = api.NodeFigures
  export type NodeStatus = api.NodeStatus
  export type Owner = api.Owner
  export import QuorumUnreachableError = api.QuorumUnreachableError
  export type RedlockAbortSignal = api.RedlockAbortSignal
  export type RedlockEvent = api.RedlockEvent
  export type RedlockEvents = api.RedlockEvents
  export type RedlockStats = api.RedlockStats
  export type ReleaseResult = api.ReleaseResult
  export import ResourceLockedError = api.ResourceLockedError
  export type Routine<T> = api.Routine<T>
  export import Sequencer = api.Sequencer
  export type Settings = api.Settings
  export import StaleTokenError = api.StaleTokenError
  export type UsingContext = api.UsingContext
  export type Warning = api.Warning
  export type Word = api.Word
  export import defaultSettings = api.defaultSettings
  // For `import Redlock from 'quorlock'` without esModuleInterop, too: a value and a type.
  export { Redlock, Redlock as default }
}
export = Redlock
