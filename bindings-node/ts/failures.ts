// Makes the error that users catch from the native half's failure. Owns node-redlock's sentences, which its
// users compare; the sentences after them are the core's.

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

/** Which of node-redlock's sentences comes first, if it has one for this operation. */
export type Operation = 'acquire' | 'extend' | 'other'

/** The error for `failure`. Created where the caller awaits, so that its stack leads to the caller. */
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
  const message = joined(failure, operation)
  switch (failure.class) {
    case 'ResourceLockedError':
      return named(new ResourceLockedError(message, attempts, details), operation)
    case 'QuorumUnreachableError':
      return named(new QuorumUnreachableError(message, attempts, details), operation)
    case 'LeaseLostError':
      return new LeaseLostError(message, attempts, details)
    case 'LockNotHeldError':
      return new LockNotHeldError(message, attempts, details)
    case 'ConfigError':
      return new ConfigError(message, details)
    case 'ExecutionError':
      return new ExecutionError(message, attempts, details)
    default:
      return new LockError(message, details)
  }
}

/**
 * node-redlock's sentence, where it has one for this operation, followed by the core's. `acquire()`,
 * `using()` and `extend()` exist in node-redlock; other operations have only the core's sentence.
 */
function joined({ class: name, message }: Failure, operation: Operation): string {
  if (operation === 'other') return message
  if (name === 'ResourceLockedError' || name === 'QuorumUnreachableError')
    return `${NO_QUORUM} ${asSentence(message.replace(/^no quorum for /, ''))}`
  const isOver = name === 'LeaseLostError' || name === 'LockNotHeldError'
  return isOver && operation === 'extend' ? `${OVER} ${asSentence(message)}` : message
}

function asSentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/**
 * Users of node-redlock recognise its errors by the name of the class, or by `instanceof`, which works
 * anyway.
 */
function named<T extends ExecutionError>(error: T, operation: Operation): T {
  if (operation === 'other') return error
  Object.defineProperty(error, 'name', {
    value: 'ExecutionError',
    writable: true,
    configurable: true,
  })
  return error
}

const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.'
const OVER = 'Cannot extend an already-expired lock.'
