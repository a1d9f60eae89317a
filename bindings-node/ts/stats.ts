// Converts the nodes' votes into users' words and into node-redlock's statistics. Nothing here decides.

import { inspect } from 'node:util'

import { type ErrorDetails, NodeError, ResourceLockedError } from './errors'
import { afterAlive } from './bridge'
import { after, uptime } from './event_loop'
import type { NodeVote } from './native'
import { withoutStack } from './stacks'

/**
 * What the user named as a node: a URL, or the client object whose settings were read. A URL with a
 * password in it and an object of parts are replaced by the address without a password. Never
 * printed with what it belongs to, because client objects hold passwords.
 */
export type Client = string | URL | object

/** What one node did in one try. */
export interface LockVote {
  /** Where the node is, without a password. */
  readonly address: string
  /** What the user named as this node. */
  readonly client: Client
  /** `missing`: it had not answered yet. */
  readonly outcome: 'granted' | 'refused' | 'failed' | 'missing'
  /** From the start of the try to the answer, in milliseconds; 0 while missing. */
  readonly latency: number
  /** For a refusal: when the other's key is free by itself, in milliseconds; Infinity for never. */
  readonly freesIn?: number
  /** For a refusal a {@link ResourceLockedError}, for a failure a {@link NodeError}. */
  readonly error?: Error
}

/**
 * The votes of one try, as node-redlock tells them. A node that had not answered at the end counts
 * in neither list.
 */
export interface ExecutionStats {
  /** How many nodes there are. */
  readonly membershipSize: number
  /** How many of them decide. */
  readonly quorumSize: number
  /** Who granted. */
  readonly votesFor: Set<Client>
  /** Who did not, and why. */
  readonly votesAgainst: Map<Client, Error>
}

/** What an operation that succeeded tells, as in node-redlock. */
export interface ExecutionResult {
  /** The statistics of every try. None of the promises rejects. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>
}

/** Data about one node; its `client` can be read, but is neither printed nor copied. */
export class OfClient {
  readonly #client: Client

  constructor(client: Client) {
    this.#client = client
  }

  /** What the user named as this node. */
  get client(): Client {
    return this.#client
  }
}

class Vote extends OfClient implements LockVote {
  declare readonly address: string
  declare readonly outcome: LockVote['outcome']
  declare readonly latency: number

  constructor(client: Client, fields: Omit<LockVote, 'client'>) {
    super(client)
    Object.assign(this, fields)
  }
}

/** The native half's votes in users' words; `resources` is for the text of a refusal. */
export function readVotes(
  votes: readonly NodeVote[],
  clients: readonly Client[],
  resources: readonly string[],
): LockVote[] {
  return votes.map((vote, index) => {
    const { address, outcome, latency, freesIn } = vote
    const error = errorOf(vote, resources)
    return new Vote(clients[index] ?? address, {
      ...{ address, outcome: outcome as LockVote['outcome'], latency },
      ...(freesIn === undefined ? {} : { freesIn: freesIn < 0 ? Infinity : freesIn }),
      ...(error === undefined ? {} : { error }),
    })
  })
}

/** The statistics of one try. */
export function statsOf(votes: readonly LockVote[]): ExecutionStats {
  return new Stats(votes)
}

/** Prints the nodes' addresses in place of the clients. */
class Stats implements ExecutionStats {
  readonly membershipSize: number
  readonly quorumSize: number
  readonly #for: VotesFor
  readonly #against: VotesAgainst

  constructor(votes: readonly LockVote[]) {
    this.membershipSize = votes.length
    this.quorumSize = Math.floor(votes.length / 2) + 1
    this.#for = new VotesFor(votes.filter(({ outcome }) => outcome === 'granted'))
    this.#against = new VotesAgainst(
      votes.filter(({ outcome, error }) => outcome !== 'granted' && error !== undefined),
    )
  }

  get votesFor(): Set<Client> {
    return this.#for
  }

  get votesAgainst(): Map<Client, Error> {
    return this.#against
  }

  [inspect.custom](): object {
    const { membershipSize, quorumSize, votesFor, votesAgainst } = this
    return { membershipSize, quorumSize, votesFor, votesAgainst }
  }
}

class VotesFor extends Set<Client> {
  readonly #addresses: readonly string[]

  constructor(votes: readonly LockVote[]) {
    super(votes.map(({ client }) => client))
    this.#addresses = votes.map(({ address }) => address)
  }

  [inspect.custom](): object {
    return new Set(this.#addresses)
  }
}

class VotesAgainst extends Map<Client, Error> {
  readonly #told: ReadonlyArray<[string, string]>

  constructor(votes: readonly LockVote[]) {
    super(votes.map(({ client, error }) => [client, error as Error]))
    this.#told = votes.map(({ address, error }) => [address, (error as Error).message])
  }

  [inspect.custom](): object {
    return new Map(this.#told)
  }
}

/**
 * The votes once every node has answered or had its time (in milliseconds), after which it counts
 * as failed.
 *
 * Keeps the process alive until then only if `alive` is set.
 */
export async function lateVotes(
  look: () => LockVote[],
  patience: number,
  alive: boolean,
): Promise<LockVote[]> {
  const end = uptime() + patience
  let votes = look()
  while (votes.some((vote) => vote.outcome === 'missing') && uptime() < end) {
    await new Promise<void>((resolve) => {
      const wait = alive ? afterAlive : after
      wait(LOOK_EVERY, resolve)
    })
    votes = look()
  }
  return votes.map((vote) => (vote.outcome === 'missing' ? timedOut(vote) : vote))
}

function errorOf(vote: NodeVote, resources: readonly string[]): Error | undefined {
  const { address, outcome, fault, detail } = vote
  if (outcome === 'refused') {
    const message = `The operation was applied to: 0 of the ${resources.length} requested resources.`
    return withoutStack(() => new ResourceLockedError(message, [], { resources }))
  }
  if (outcome === 'failed')
    return nodeError(address, detail ?? 'failed', { code: fault, resources })
  return undefined
}

function nodeError(address: string, detail: string, details: ErrorDetails): Error {
  return withoutStack(() => new NodeError(`${address}: ${detail}`, address, details))
}

function timedOut(vote: LockVote): LockVote {
  return new Vote(vote.client, {
    ...vote,
    outcome: 'failed',
    error: nodeError(vote.address, 'no answer in time', { code: 'TIMED_OUT' }),
  })
}

/** In milliseconds. */
const LOOK_EVERY = 5
