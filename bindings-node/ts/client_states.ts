// Checks whether client objects still use the settings that were read from them. If not, node-redlock with
// the same clients would lock other keys than this library, and both would grant one lock: the user must
// learn of that. Nothing is locked on the nodes of clients that have not told their database.

import { afterFree } from './bridge'
import type { NamedNode } from './clients'
import { ConfigError, QuorumUnreachableError } from './errors'
import { uptime } from './event_loop'
import type { Operation } from './failures'
import { type Failure, native, type NativeLease, type NodeVote } from './native'
import { onAbort, orAborted, reasonOf } from './signals'
import { WatchedClient, type WatchListener } from './watched_client'

/** What a check reports besides errors: `index` is the node's. */
export interface StateListener {
  /**
   * Before the first lock it was found that clients use other databases than their options say, by node.
   * Returns whether those could be used instead.
   */
  databases(found: ReadonlyMap<number, number>): boolean
  /** No keys may be made on the node, or they may again. */
  leaveOut(index: number, isLeftOut: boolean): void
  /** Whether nothing is locked any more. */
  isClosed(): boolean
  /** The error for what the native half has not been asked for. */
  failure(failure: Failure, operation: Operation): Error
  /** A warning that a person should read. */
  warn(name: string, message: string, index: number): void
}

/** What the clients are checked for. */
export interface Call {
  readonly resources: readonly string[]
  readonly operation: Operation
  /** How long it waits for them, in milliseconds; `null` without a limit. */
  readonly patience?: () => number | null
  /** Whether it goes on where too few have told: the native half then finds no quorum. */
  readonly proceeds?: boolean
  /** Nobody waits for it any more when this aborts. */
  readonly signal?: AbortSignal | undefined
}

/** The client objects of one Redlock. */
export class ClientStates {
  readonly #watched: WatchedClient[]
  readonly #addressOf: (index: number) => string
  readonly #listener: StateListener
  readonly #size: number
  /** Whether a lock was allowed: what was read until then may not change any more. */
  #isSettled = false
  /** When all clients were asked last. */
  #askedAt = -Infinity
  /** What callers with time enough wait for together, and since when. */
  #hearing: Promise<void> | undefined
  #heardSince = -Infinity
  /** What looks again after each answer. */
  readonly #waits = new Set<() => void>()

  constructor(
    nodes: readonly NamedNode[],
    addressOf: (index: number) => string,
    listener: StateListener,
  ) {
    this.#size = nodes.length
    this.#addressOf = addressOf
    this.#listener = listener
    const own: WatchListener = {
      heard: () => this.#leaveOut(),
      momentIsOver: () => this.#look(),
      isAwaited: () => this.#waits.size > 0,
      isSettled: () => this.#isSettled,
      warn: (name, message, index) => {
        if (!listener.isClosed()) listener.warn(name, message, index)
      },
    }
    this.#watched = nodes.flatMap(({ object, given }, index) => {
      if (object === undefined) return []
      return new WatchedClient(
        { given: given as object, object, index },
        () => addressOf(index),
        own,
      )
    })
    this.#compare(({ object }) => object.follows)
    this.#leaveOut()
  }

  /**
   * Throws a {@link ConfigError} if a client uses other keys by now than those that this Redlock
   * locks. Returns a promise that rejects with it if clients have to be asked: those that have not told
   * their database over their present connection, or told a wrong one, and all of them when a second has passed since. It rejects with a
   * {@link QuorumUnreachableError} if no majority has told it in time, unless `call` proceeds without one.
   */
  check(call: Call): Promise<void> | undefined {
    const asking = this.#check(call.patience, call.signal)
    return asking && this.#explain(asking, call)
  }

  #check(patience?: () => number | null, signal?: AbortSignal): Promise<void> | undefined {
    if (this.#watched.length === 0 || this.#listener.isClosed()) return undefined
    for (const client of this.#watched) client.check()
    const isDue = uptime() - this.#askedAt >= ASK_AGAIN_AFTER
    if (isDue) this.#askedAt = uptime()
    for (const client of this.#watched) if (isDue || client.isOpen) client.ask()
    if (this.#isReady()) return void this.#decide()
    const limit = patience?.() ?? PATIENCE
    if (limit < PATIENCE) return this.#hear(limit)
    if (limit > PATIENCE && this.#areAway()) return this.#hearAll(limit, signal)
    const isLate = this.#hearing !== undefined && uptime() - this.#heardSince > SHARED_FOR
    return isLate ? this.#hear(PATIENCE) : this.#hearTogether()
  }

  /**
   * Checks again when a lock was won, because clients may have moved or connected again while it was waited for. Withdraws
   * its `lease` if so. Rejects as {@link check} does.
   */
  confirm(lease: NativeLease, call: Call, signal?: AbortSignal): Promise<void> | undefined {
    if (this.#watched.length === 0 || native.degraded(lease)) return undefined
    return this.#explain(this.#confirm(lease, call, signal), { ...call, proceeds: false })
  }

  /** Asks clients whose nodes are left out of renewals: they may have connected again. */
  askLeftOut(): void {
    if (this.#listener.isClosed()) return
    for (const client of this.#watched) if (client.isOpen) client.ask()
  }

  /** Asks no client any more. */
  close(): void {
    for (const client of this.#watched) client.close()
    this.#look()
  }

  async #confirm(lease: NativeLease, call: Call, signal?: AbortSignal): Promise<void> {
    const hasGranted = ({ index }: WatchedClient): boolean =>
      native.votes(lease)[index]?.outcome === 'granted'
    try {
      // Where the server answers, the client will, too, unless it is busy.
      for (const client of this.#watched)
        if (client.isAsking && hasGranted(client)) client.awaitMoment()
      const asking = this.#check(() => TO_CONFIRM)
      if (asking !== undefined) await timed(asking, signal)
      if (asking !== undefined && this.#listener.isClosed()) throw this.#closed(call)
      // On the nodes of clients that have connected again meanwhile, keys may be in another database than theirs.
      const lost = this.#untold().filter(hasGranted).length
      const granted = native.votes(lease).filter(({ outcome }) => outcome === 'granted').length
      if (lost > 0 && (granted - lost) * 2 <= this.#size) throw this.#unreachable(TO_CONFIRM)
      if (native.validity(lease) <= 0)
        throw new QuorumUnreachableError(
          'the lock ended while its clients were asked for their databases',
        )
    } catch (error) {
      native.withdraw(lease)
      throw error
    }
  }

  /**
   * Waits for the clients that were asked: for all of them a moment, because one may be busy with a command that
   * blocks, and for a majority `millis` milliseconds.
   */
  async #hear(millis: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (this.#isReady() || this.#listener.isClosed()) end()
      }
      const end = (): void => {
        cancel()
        this.#waits.delete(look)
        resolve()
      }
      const again = (): void => {
        for (const client of this.#watched) if (client.isOpen) client.ask()
        look()
      }
      const cancel = afterFree(millis, end, again)
      this.#waits.add(look)
    })
    if (this.#listener.isClosed()) return
    for (const client of this.#watched) client.check()
    this.#decide(millis)
  }

  /** Waits for longer, as too few clients are connected: one wait after another, which all such callers share. */
  async #hearAll(millis: number, signal?: AbortSignal): Promise<void> {
    let isOver = false
    let stop = (): void => {}
    const over = new Promise<boolean>((resolve) => {
      const end = (): void => {
        isOver = true
        resolve(false)
      }
      const [cancel, unlisten] = [afterFree(millis, end), signal && onAbort(signal, end)]
      stop = () => {
        cancel()
        unlisten?.()
      }
    })
    const hear = async (): Promise<boolean> => {
      while (!isOver) {
        try {
          await this.#hearTogether()
          return true
        } catch (error) {
          if (!(error instanceof Untold)) throw error
        }
      }
      return false
    }
    // One race, because each would add to what `over` keeps.
    const isHeard = await Promise.race([hear(), over]).finally(() => stop())
    if (isHeard || signal?.aborted) return
    for (const client of this.#watched) client.check()
    this.#decide(millis)
  }

  /** The wait that callers share: a second, from when the first of them came. */
  #hearTogether(): Promise<void> {
    if (this.#hearing === undefined) {
      this.#heardSince = uptime()
      this.#hearing = this.#hear(PATIENCE).finally(() => (this.#hearing = undefined))
    }
    return this.#hearing
  }

  /** Whether too few clients are connected for a majority to tell. */
  #areAway(): boolean {
    return (
      this.#untold().filter(({ object }) => object.link() === undefined).length * 2 >= this.#size
    )
  }

  /** What is known now lets a lock be made, or is an error: after `millis` milliseconds. */
  #decide(millis = 0): void {
    this.#leaveOut()
    for (const client of this.#watched) client.tellLeftOut()
    const mistake = this.#watched.find(({ mistake }) => mistake !== undefined)?.mistake
    if (mistake !== undefined) throw new ConfigError(mistake)
    if (!this.#hasMajority()) throw this.#unreachable(millis)
    this.#settle()
  }

  #isReady(): boolean {
    return this.#watched.every(({ isAwaited }) => !isAwaited) && this.#hasMajority()
  }

  /** Whether the databases of a majority are known. */
  #hasMajority(): boolean {
    return this.#untold().length * 2 < this.#size
  }

  /** Lets keys be made only on nodes whose clients have told the database that is locked. */
  #leaveOut(): void {
    for (const { index, mayLock } of this.#watched) this.#listener.leaveOut(index, !mayLock)
  }

  #untold(): WatchedClient[] {
    return this.#watched.filter(({ isTold }) => !isTold)
  }

  /** Makes what the clients have told what this Redlock locks, once. */
  #settle(): void {
    if (this.#isSettled) return
    this.#compare(({ isTold, object }) => isTold || object.follows)
    // All must be equal: those that have not answered yet are assumed to be the same as the others.
    const db = this.#watched.find(({ isTold }) => isTold)?.place.db
    const found = new Map<number, number>()
    for (const client of this.#watched) {
      if (!client.isTold && !client.object.follows && db !== undefined)
        client.place = { ...client.place, db }
      if (client.place.db !== client.lockedDb) found.set(client.index, client.place.db)
    }
    if (found.size > 0 && !this.#listener.databases(found))
      throw new ConfigError(
        'the clients have selected another database: make a new Redlock after select()',
      )
    this.#isSettled = true
    for (const client of this.#watched) client.lockedDb = client.place.db
    this.#leaveOut()
  }

  #unreachable(millis: number): Untold {
    const untold = this.#untold()
    const addresses = untold.map(({ address }) => address).join(', ')
    const areAway = untold.every(({ object }) => object.link() === undefined)
    const told = untold.find((client) => client.why !== '')?.why
    const why = areAway ? 'it is not connected' : told
    const message = `${addresses}: the client has not told within ${Math.round(millis)} ms which database it uses`
    const indices = new Set(untold.map(({ index }) => index))
    return new Untold(why === undefined ? message : `${message} (${why})`, indices)
  }

  /** Makes the caller's own error of one that many callers may share. */
  async #explain(asking: Promise<void>, { resources, operation, proceeds }: Call): Promise<void> {
    const begun = uptime()
    try {
      await asking
    } catch (error) {
      if (!(error instanceof Untold)) throw error
      if (proceeds === true) return
      const names = resources.map((name) => `'${name}'`).join(', ')
      const message = names === '' ? error.message : `no quorum for ${names}: ${error.message}`
      const failure = { message, resources: [...resources], elapsed: uptime() - begun }
      const rounds = [this.#votes(error.indices)]
      throw this.#listener.failure({ ...UNREACHABLE, ...failure, rounds }, operation)
    }
  }

  /** Of a round that was not begun: nodes that were not asked are missing. */
  #votes(untold: ReadonlySet<number>): NodeVote[] {
    return Array.from({ length: this.#size }, (_, index) => {
      const vote = { address: this.#addressOf(index), latency: 0 }
      const detail = 'its client has not told which database it uses'
      return untold.has(index)
        ? { ...vote, outcome: 'failed', fault: 'NOT_SENT', detail }
        : { ...vote, outcome: 'missing' }
    })
  }

  #closed({ resources, operation }: Call): Error {
    const names = resources.map((name) => `'${name}'`).join(', ')
    const message = `${names}: the lock manager is closed; make a new one`
    const failure = { ...CLOSED, message, resources: [...resources] }
    return this.#listener.failure(failure, operation)
  }

  #look(): void {
    for (const look of [...this.#waits]) look()
  }

  /**
   * Refuses clients that use different keys: a lock that one of them takes would be invisible to the others.
   */
  #compare(isKnown: (client: WatchedClient) => boolean): void {
    const first = this.#watched.find(isKnown) ?? this.#watched[0]
    if (first === undefined) return
    const other = this.#watched.find((client) => {
      const { place } = client
      const hasOtherDb = isKnown(client) && isKnown(first) && place.db !== first.place.db
      return hasOtherDb || place.keyPrefix !== first.place.keyPrefix
    })
    if (other === undefined) return
    const what = first.place.db === other.place.db ? 'key prefixes' : 'databases'
    throw new ConfigError(
      `the clients use different ${what}: ${first.tell()}, but ` +
        `${other.tell()}; give all of them the same, or name the nodes by URLs`,
    )
  }
}

/** The clients of the nodes with these numbers have not told in time. */
class Untold extends Error {
  constructor(
    message: string,
    readonly indices: ReadonlySet<number>,
  ) {
    super(message)
  }
}

/** Waits for the clients, or until the signal is aborted; ends with how long it took in milliseconds. */
export async function timed(asking: Promise<void>, signal?: AbortSignal): Promise<number> {
  const begun = uptime()
  await (signal === undefined ? asking : orAborted(asking, signal))
  if (signal?.aborted) throw reasonOf(signal)
  return uptime() - begun
}

const UNREACHABLE = { class: 'QuorumUnreachableError', code: 'QUORUM_UNREACHABLE', attempts: 0 }
const CLOSED = { class: 'ExecutionError', code: 'CLOSED', attempts: 0, elapsed: 0, rounds: [] }

/** How long a majority of clients may take to tell their databases, in milliseconds. */
const PATIENCE = 1000

/** How long a lock that was won may wait for clients that have connected again meanwhile, in milliseconds. */
const TO_CONFIRM = 150

/** How long after its beginning others join a wait for clients, in milliseconds: all have nearly as much time. */
const SHARED_FOR = 50

/** How long locks go without asking the clients for their databases again, in milliseconds. */
const ASK_AGAIN_AFTER = 1000
