// Checks whether client objects still use the settings that were read from them. If not, node-redlock with
// the same clients would lock other keys than this library, and both would grant one lock: the user must
// learn of that. Nothing is locked on the nodes of clients that have not told their database.

import type { Answer, ClientObject, Place } from './client_objects'
import { ConfigError, QuorumUnreachableError } from './errors'
import { afterFree } from './bridge'
import { uptime } from './event_loop'
import { native, type NativeLease } from './native'
import { orAborted, reasonOf } from './signals'

/** A client object with what it used when it was read. */
interface Watched {
  readonly object: ClientObject
  readonly index: number
  readonly login: readonly [unknown, unknown]
  place: Place
  /** The connection over which it told its database, or the server refused to tell it; 0 if it has to be asked. */
  toldBy: number
  /** Whether a question to it is on its way. */
  isAsking: boolean
  /** Ends the moment for which locks wait for the answer; undefined if they do not wait. */
  endMoment: (() => void) | undefined
  /** Why the last question failed. */
  why: string
  /** Whether the user was told that the server refuses to tell its database. */
  isRefusalTold: boolean
  /** Whether the user was told that its credentials have changed. */
  isLoginTold: boolean
}

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
  /** A warning that a person should read. */
  warn(name: string, message: string, index: number): void
}

/** The client objects of one Redlock. */
export class ClientStates {
  readonly #watched: Watched[]
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
  #mistake: string | undefined

  constructor(
    nodes: ReadonlyArray<{ readonly object: ClientObject | undefined }>,
    addressOf: (index: number) => string,
    listener: StateListener,
  ) {
    this.#size = nodes.length
    this.#addressOf = addressOf
    this.#listener = listener
    this.#watched = nodes.flatMap(({ object }, index) =>
      object === undefined
        ? []
        : [
            {
              ...{ object, index, place: object.now(), login: object.login() },
              ...{ toldBy: 0, isAsking: false, endMoment: undefined, why: '' },
              ...{ isRefusalTold: false, isLoginTold: false },
            },
          ],
    )
    this.#compare(({ object }) => object.follows)
    this.#leaveOut()
  }

  /**
   * Throws a {@link ConfigError} if a client uses other keys by now than those that this Redlock
   * locks. Returns a promise that rejects with it if clients have to be asked: those that have not told
   * their database over their present connection, and all of them when a second has passed since. It rejects with a
   * {@link QuorumUnreachableError} if no majority has told it in time, of which `patience` tells the caller's, in
   * milliseconds; `null` without a limit.
   */
  check(patience?: () => number | null): Promise<void> | undefined {
    if (this.#watched.length === 0 || this.#listener.isClosed()) return undefined
    this.#compareNow()
    const isDue = uptime() - this.#askedAt >= ASK_AGAIN_AFTER
    if (isDue) this.#askedAt = uptime()
    this.#ask(this.#watched.filter((watched) => isDue || !isTold(watched)))
    if (this.#isReady()) return void this.#settle()
    const limit = patience?.() ?? PATIENCE
    if (limit < PATIENCE) return this.#hear(limit)
    if (this.#hearing === undefined) {
      this.#heardSince = uptime()
      this.#hearing = this.#hear(PATIENCE).finally(() => (this.#hearing = undefined))
    }
    const isLate = uptime() - this.#heardSince > SHARED_FOR
    return isLate ? this.#hear(PATIENCE) : this.#hearing
  }

  /**
   * Checks again when a lock was won, because clients may have moved or connected again while it was waited for. Withdraws
   * its `lease` if so. Rejects as {@link check} does.
   */
  confirm(lease: NativeLease, signal?: AbortSignal): Promise<void> | undefined {
    if (this.#watched.length === 0 || native.degraded(lease)) return undefined
    return this.#confirm(lease, signal)
  }

  async #confirm(lease: NativeLease, signal?: AbortSignal): Promise<void> {
    const hasGranted = ({ index }: Watched): boolean =>
      native.votes(lease)[index]?.outcome === 'granted'
    try {
      // Where the server answers, the client will, too, unless it is busy.
      for (const watched of this.#watched)
        if (watched.isAsking && hasGranted(watched)) this.#awaitMoment(watched)
      const asking = this.check(() => TO_CONFIRM)
      if (asking !== undefined) await timed(asking, signal)
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
        if (this.#isReady()) end()
      }
      const end = (): void => {
        cancel()
        this.#waits.delete(look)
        resolve()
      }
      const again = (): void => {
        this.#ask(this.#untold())
        look()
      }
      const cancel = afterFree(millis, end, again)
      this.#waits.add(look)
    })
    this.#compareNow()
    if (!this.#hasMajority()) throw this.#unreachable(millis)
    this.#settle()
  }

  #isReady(): boolean {
    return this.#watched.every(({ endMoment }) => endMoment === undefined) && this.#hasMajority()
  }

  /** Whether the databases of a majority are known. */
  #hasMajority(): boolean {
    return this.#untold().length * 2 < this.#size
  }

  /** Lets keys be made only on nodes whose clients have told their database. One that has told a wrong one stays out. */
  #leaveOut(): void {
    if (this.#mistake !== undefined) return
    for (const watched of this.#watched) this.#listener.leaveOut(watched.index, !isTold(watched))
  }

  #untold(): Watched[] {
    return this.#watched.filter((watched) => !isTold(watched))
  }

  #compareNow(): void {
    if (this.#mistake !== undefined) throw new ConfigError(this.#mistake)
    for (const watched of this.#watched) this.#checkOne(watched)
    this.#leaveOut()
  }

  #checkOne(watched: Watched): void {
    const { object, place, login, index } = watched
    const now = object.now()
    if (now.keyPrefix !== place.keyPrefix || (object.follows && now.db !== place.db))
      throw new ConfigError(this.#hasMoved(watched, now))
    const [username, password] = object.login()
    if (watched.isLoginTold || (username === login[0] && password === login[1])) return
    watched.isLoginTold = true
    this.#listener.warn(
      'credentials-changed',
      `${this.#addressOf(index)}: its client has other credentials than when this Redlock was made, ` +
        'which goes on with the old ones and cannot log in with them again: make a new Redlock',
      index,
    )
  }

  /** Makes what the clients have told what this Redlock locks, once. */
  #settle(): void {
    if (this.#isSettled) return
    this.#compare(isTold)
    this.#isSettled = true
    // All must be equal: those that have not answered yet are assumed to be the same as the others.
    const db = this.#watched.find(isTold)?.place.db
    const found = new Map<number, number>()
    for (const watched of this.#watched) {
      const { index, object } = watched
      if (object.follows) continue
      if (!isTold(watched) && db !== undefined) watched.place = { ...watched.place, db }
      if (watched.place.db !== object.now().db) found.set(index, watched.place.db)
    }
    if (found.size === 0) return
    if (this.#listener.databases(found)) return this.#leaveOut()
    this.#mistake = 'the clients have selected another database: make a new Redlock after select()'
    throw new ConfigError(this.#mistake)
  }

  #unreachable(millis: number): QuorumUnreachableError {
    const untold = this.#untold()
    const addresses = untold.map(({ index }) => this.#addressOf(index)).join(', ')
    const why = untold.find((watched) => watched.why !== '')?.why
    const message = `${addresses}: the client has not told within ${Math.round(millis)} ms which database it uses`
    return new QuorumUnreachableError(why === undefined ? message : `${message} (${why})`)
  }

  /** Asks those of `clients` that can be asked and have no question left to answer. */
  #ask(clients: readonly Watched[]): void {
    for (const watched of clients)
      if (!watched.isAsking && watched.object.connection() !== undefined) void this.#askOne(watched)
  }

  async #askOne(watched: Watched): Promise<void> {
    const { object } = watched
    watched.isAsking = true
    this.#awaitMoment(watched)
    let [isTold, isRefused] = [true, false]
    try {
      this.#learn(watched, await object.ask())
      watched.why = ''
    } catch (error) {
      watched.why = error instanceof Error ? error.message : String(error)
      isTold = isRefused = REFUSAL.test(watched.why)
    }
    watched.toldBy = isTold ? (object.connection() ?? 0) : 0
    watched.isAsking = false
    this.#leaveOut()
    watched.endMoment?.()
    // It was told before the client took its connection for ready, or after it had lost it.
    if (isTold && watched.toldBy === 0 && this.#waits.size > 0) this.#ask([watched])
    this.#look()
    if (isRefused) this.#tellRefusal(watched) // at last: a listener may throw
  }

  /** Lets locks wait for the answer of `watched`, for a moment. */
  #awaitMoment(watched: Watched): void {
    if (watched.endMoment !== undefined) return
    const end = (): void => {
      cancel()
      watched.endMoment = undefined
      this.#look()
    }
    const cancel = afterFree(MOMENT, end)
    watched.endMoment = end
  }

  #look(): void {
    for (const look of [...this.#waits]) look()
  }

  #learn(watched: Watched, { db, followed }: Answer): void {
    const { place } = watched
    if (followed !== undefined) {
      if (db !== followed) this.#mistake ??= this.#hasStrayed(watched, db, followed)
    } else if (!this.#isSettled) watched.place = { ...place, db }
    else if (db !== place.db) this.#mistake ??= this.#hasMoved(watched, { ...place, db })
  }

  #tellRefusal(watched: Watched): void {
    const { object, index, place, why, isRefusalTold } = watched
    if (isRefusalTold || this.#listener.isClosed()) return
    watched.isRefusalTold = true
    this.#listener.warn(
      'unknown-database',
      `${this.#addressOf(index)}: its client does not tell which database it has selected (${why}); ` +
        `taken is database ${place.db}, as ${object.follows ? 'it says itself' : 'in its options'}: ` +
        'give the node by a URL if that is wrong',
      index,
    )
  }

  /**
   * Refuses clients that use different keys: a lock that one of them takes would be invisible to the others.
   */
  #compare(isKnown: (watched: Watched) => boolean): void {
    const first = this.#watched.find(isKnown) ?? this.#watched[0]
    if (first === undefined) return
    const other = this.#watched.find((watched) => {
      const { place } = watched
      const hasOtherDb = isKnown(watched) && isKnown(first) && place.db !== first.place.db
      return hasOtherDb || place.keyPrefix !== first.place.keyPrefix
    })
    if (other === undefined) return
    const what = first.place.db === other.place.db ? 'key prefixes' : 'databases'
    throw new ConfigError(
      `the clients use different ${what}: ${this.#tell(first, first.place)}, but ` +
        `${this.#tell(other, other.place)}; give all of them the same, or name the nodes by URLs`,
    )
  }

  #hasMoved(watched: Watched, now: Place): string {
    return (
      `${this.#tell(watched, now)} now, but when this Redlock was made, it used ` +
      `${inWords(watched.place)}: a lock would have two holders; make a new Redlock after select()`
    )
  }

  #hasStrayed({ index }: Watched, db: number, followed: number): string {
    return (
      `the client of ${this.#addressOf(index)} uses database ${db}, but takes it for ${followed} and goes ` +
      'back there when it connects again, because it was not told by its own select(): a lock would have two ' +
      `holders; call select(${db}) or give it the option db, then make a new Redlock`
    )
  }

  #tell({ index }: Watched, place: Place): string {
    return `the client of ${this.#addressOf(index)} uses ${inWords(place)}`
  }
}

/** Waits for the clients, or until the signal is aborted; ends with how long it took in milliseconds. */
export async function timed(asking: Promise<void>, signal?: AbortSignal): Promise<number> {
  const begun = uptime()
  await (signal === undefined ? asking : orAborted(asking, signal))
  if (signal?.aborted) throw reasonOf(signal)
  return uptime() - begun
}

/** Whether the database of a client is known since its connection was made; one that cannot be asked says it itself. */
function isTold({ object, toldBy }: Watched): boolean {
  const connection = object.connection()
  return connection === undefined || (toldBy !== 0 && toldBy === connection)
}

function inWords({ db, keyPrefix }: Place): string {
  return `database ${db}${keyPrefix === '' ? ' and no key prefix' : ` and the key prefix '${keyPrefix}'`}`
}

/** What a server answers that does not permit, or does not know, the question. */
const REFUSAL = /^(?:NOPERM|ERR unknown (?:sub)?command)/i

/** How long a majority of clients may take to tell their databases, in milliseconds. */
const PATIENCE = 1000

/** How long a lock that was won may wait for clients that have connected again meanwhile, in milliseconds. */
const TO_CONFIRM = 150

/** How long after its beginning others join a wait for clients, in milliseconds: all have nearly as much time. */
const SHARED_FOR = 50

/** How long locks go without asking the clients for their databases again, in milliseconds. */
const ASK_AGAIN_AFTER = 1000

/** How long a lock waits for all answers to a question, if it needs no more than a majority; in milliseconds. */
const MOMENT = 20
