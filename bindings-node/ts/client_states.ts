// Checks whether client objects still use the settings that were read from them. If not, node-redlock with
// the same clients would lock other keys than this library, and both would grant one lock: the user must
// learn of that.

import { clearTimeout, setTimeout } from 'node:timers'

import type { ClientObject, Place } from './client_objects'
import { ConfigError, QuorumUnreachableError } from './errors'

/** A client object with what it used when it was read. */
interface Watched {
  readonly object: ClientObject
  readonly index: number
  readonly login: readonly [unknown, unknown]
  place: Place
  /** Whether its database is known: it told that, or it can have no other than that of its options. */
  isKnown: boolean
  isAsked: boolean
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
  /** A warning that a person should read. */
  warn(name: string, message: string, index: number): void
}

/** The client objects of one Redlock. */
export class ClientStates {
  readonly #watched: Watched[]
  readonly #addressOf: (index: number) => string
  readonly #listener: StateListener
  readonly #size: number
  /** Pending while databases are asked for that only the clients themselves know. */
  #asking: Promise<void> | undefined
  #isSettled = false
  #onAnswer: () => void = () => {}
  #mistake: string | undefined

  /** `objects` in the order of the nodes; undefined for a node that is no client object. */
  constructor(
    objects: ReadonlyArray<ClientObject | undefined>,
    addressOf: (index: number) => string,
    listener: StateListener,
  ) {
    this.#size = objects.length
    this.#addressOf = addressOf
    this.#listener = listener
    this.#watched = objects.flatMap((object, index) =>
      object === undefined
        ? []
        : [
            {
              ...{ object, index, place: object.now(), login: object.login() },
              ...{ isKnown: object.ask === undefined, isAsked: false, isLoginTold: false },
            },
          ],
    )
    this.#isSettled = this.#watched.every(({ isKnown }) => isKnown)
    this.#compare()
  }

  /**
   * Throws a {@link ConfigError} if a client uses other keys by now than those that this Redlock
   * locks. Before the first lock, returns a promise that rejects with it, if clients have to be
   * asked; with a {@link QuorumUnreachableError} if too few of them answer in time.
   */
  check(): Promise<void> | undefined {
    for (const watched of this.#watched) this.#checkOne(watched)
    if (!this.#isSettled) {
      this.#asking ??= this.#settle().finally(() => (this.#asking = undefined))
      return this.#asking
    }
    if (this.#mistake !== undefined) throw new ConfigError(this.#mistake)
    return undefined
  }

  #checkOne(watched: Watched): void {
    const { object, place, login, index } = watched
    const now = object.now()
    // The options that node-redis was created with do not say what it has selected since.
    if (now.keyPrefix !== place.keyPrefix || (object.ask === undefined && now.db !== place.db))
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

  /** Asks every client whose database is not known, all at once, until a majority is known. */
  async #settle(): Promise<void> {
    for (const watched of this.#watched) {
      if (watched.isKnown || watched.isAsked) continue
      const answer = watched.object.ask?.()
      watched.isKnown = answer === undefined
      watched.isAsked = answer !== undefined
      if (answer !== undefined) void this.#learn(watched, answer)
    }
    await this.#majority()
    const known = this.#watched.filter(({ isKnown }) => isKnown)
    this.#compare()
    this.#isSettled = true
    // All must be equal: those that have not answered yet are assumed to be the same as the others.
    const db = known[0]?.place.db
    const found = new Map<number, number>()
    for (const watched of this.#watched) {
      if (!watched.isKnown && db !== undefined) watched.place = { ...watched.place, db }
      const { index, object, place } = watched
      if (place.db !== object.now().db) found.set(index, place.db)
    }
    if (found.size === 0 || this.#listener.databases(found)) return
    this.#mistake = 'the clients have selected another database: make a new Redlock after select()'
    throw new ConfigError(this.#mistake)
  }

  #majority(): Promise<void> {
    const unknown = (): Watched[] => this.#watched.filter(({ isKnown }) => !isKnown)
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const silent = unknown().map(({ index }) => this.#addressOf(index))
        const message = `${silent.join(', ')}: the client has not told within ${PATIENCE} ms which database it uses`
        reject(new QuorumUnreachableError(message))
      }, PATIENCE)
      this.#onAnswer = (): void => {
        if ((this.#size - unknown().length) * 2 <= this.#size) return
        clearTimeout(timer)
        resolve()
      }
      this.#onAnswer()
    })
  }

  async #learn(watched: Watched, answer: Promise<number>): Promise<void> {
    const { index, place } = watched
    try {
      const db = await answer
      if (!this.#isSettled) watched.place = { ...place, db }
      else if (db !== watched.place.db)
        this.#mistake ??= this.#hasMoved(watched, { ...watched.place, db })
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      this.#listener.warn(
        'unknown-database',
        `${this.#addressOf(index)}: its client does not tell which database it has selected (${why}); ` +
          `taken is database ${place.db}, as in its options: give the node by a URL if that is wrong`,
        index,
      )
    }
    watched.isKnown = true
    this.#onAnswer()
  }

  /**
   * Refuses clients that use different keys: a lock that one of them takes would be invisible to the others.
   */
  #compare(): void {
    const first = this.#watched.find(({ isKnown }) => isKnown) ?? this.#watched[0]
    if (first === undefined) return
    const other = this.#watched.find(({ place, isKnown }) => {
      const hasOtherDb = isKnown && first.isKnown && place.db !== first.place.db
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

  #tell({ index }: Watched, place: Place): string {
    return `the client of ${this.#addressOf(index)} uses ${inWords(place)}`
  }
}

function inWords({ db, keyPrefix }: Place): string {
  return `database ${db}${keyPrefix === '' ? ' and no key prefix' : ` and the key prefix '${keyPrefix}'`}`
}

/** How long clients may take to tell their databases before the first lock, in milliseconds. */
const PATIENCE = 1000
