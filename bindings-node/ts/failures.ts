// What the native half tells as a failure, as the error that users catch. Owns node-redlock's
// sentences, which its users match on; the sentences behind them are the core's.

import {
  type Attempts,
  ConfigError,
  type ErrorDetails,
  ExecutionError,
  LeaseLostError,
  LockError,
  LockNotHeldError,
  QuorumUnreachableError,
  ResourceLockedError,
} from './errors'
import type { Failure } from './native'
import { type Client, readVotes, statsOf } from './stats'

/** Which of node-redlock's sentences comes first, if it has one for this. */
export type Operation = 'acquire' | 'extend' | 'other'

/** The error for `failure`. Made where the caller awaits, so that its stack leads to the caller. */
export function errorOf(
  failure: Failure,
  clients: readonly Client[],
  operation: Operation,
): LockError {
  const rounds = failure.rounds.map((votes) => readVotes(votes, clients, failure.resources))
  const details: ErrorDetails = {
    code: failure.code,
    resources: failure.resources,
    attemptCount: failure.attempts,
    elapsed: failure.elapsed,
    votes: rounds.at(-1) ?? [],
  }
  const attempts = (): ReturnType<Extract<Attempts, () => unknown>> =>
    rounds.map((votes) => Promise.resolve(statsOf(votes)))
  return build(failure, attempts, details, operation)
}

function build(
  failure: Failure,
  attempts: Attempts,
  details: ErrorDetails,
  operation: Operation,
): LockError {
  const { message } = failure
  switch (failure.class) {
    case 'ResourceLockedError':
      return asExecutionError(new ResourceLockedError(`${NO_QUORUM} ${message}`, attempts, details))
    case 'QuorumUnreachableError':
      return asExecutionError(
        new QuorumUnreachableError(`${NO_QUORUM} ${message}`, attempts, details),
      )
    case 'LeaseLostError':
      return new LeaseLostError(
        operation === 'extend' ? `${OVER} ${message}` : message,
        attempts,
        details,
      )
    case 'LockNotHeldError':
      return new LockNotHeldError(
        operation === 'extend' ? `${OVER} ${message}` : message,
        attempts,
        details,
      )
    case 'ConfigError':
      return new ConfigError(message, details)
    case 'ExecutionError':
      return new ExecutionError(message, attempts, details)
    default:
      return new LockError(message, details)
  }
}

/**
 * Users of node-redlock tell what it throws by this name, or by `instanceof`, which holds anyway.
 */
function asExecutionError<T extends ExecutionError>(error: T): T {
  Object.defineProperty(error, 'name', {
    value: 'ExecutionError',
    writable: true,
    configurable: true,
  })
  return error
}

const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.'
const OVER = 'Cannot extend an already-expired lock.'
