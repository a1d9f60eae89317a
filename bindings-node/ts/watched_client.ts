// One client object of one Redlock: what it has told of its database, and what the Redlock locks by it. Owns the
// sentences about it.

import { afterFree } from './bridge'
import type { Answer, ClientObject, Place } from './client_objects'
import { type Asker, type Heard, type Questions, questionsTo } from './client_questions'
import { ConfigError } from './errors'
import { uptime } from './event_loop'

/** What the Redlock wants to know of its clients. */
export interface WatchListener {
  /** The client has told something, or could not. */
  heard(): void
  /** Nobody waits for its answer any more. */
  momentIsOver(): void
  /** Whether locks wait until enough clients have told. */
  isAwaited(): boolean
  /** Whether what was read until now may not change any more. */
  isSettled(): boolean
  /** A warning that a person should read. */
  warn(name: string, message: string, index: number): void
}

/** A client object with what it used when it was read. */
export class WatchedClient implements Asker {
  readonly object: ClientObject
  /** The node's. */
  readonly index: number
  /** What it uses: by its own account, until it has told. */
  place: Place
  /** The database that this Redlock locks by it. */
  lockedDb: number
  /** Why its last answer was wrong; undefined if it was right. */
  mistake: string | undefined
  /** Why the last question failed. */
  why = ''
  readonly #address: () => string
  readonly #listener: WatchListener
  readonly #questions: Questions
  readonly #login: readonly [unknown, unknown]
  readonly #server: string
  /** The connection over which it told its database, or the server refused to tell it; 0 if it has to be asked. */
  #toldBy = 0
  /** Whether a question to it is on its way. */
  #isAsking = false
  /** Ends the moment for which locks wait for the answer; undefined if they do not wait. */
  #endMoment: (() => void) | undefined
  /** Since when operations leave its node out. */
  #leftOutSince: number | undefined
  #isLeftOutTold = false
  /** The names of the warnings that were told. */
  readonly #warned = new Set<string>()

  constructor(
    client: { readonly given: object; readonly object: ClientObject; readonly index: number },
    address: () => string,
    listener: WatchListener,
  ) {
    this.object = client.object
    this.index = client.index
    this.place = client.object.now()
    this.lockedDb = this.place.db
    this.#login = client.object.login()
    this.#server = client.object.server()
    this.#questions = questionsTo(client.given, client.object)
    this.#address = address
    this.#listener = listener
  }

  get address(): string {
    return this.#address()
  }

  /** Whether its database is known since its connection was made; one that cannot be asked says it itself. */
  get isTold(): boolean {
    const connection = this.object.connection()
    return connection === undefined || (this.#toldBy !== 0 && this.#toldBy === connection)
  }

  /** Whether keys may be made on its node: its database is known, and the one that is locked. */
  get mayLock(): boolean {
    const { object, place, lockedDb } = this
    const isRight = place.db === lockedDb && (!object.follows || object.now().db === lockedDb)
    return this.isTold && isRight && this.mistake === undefined
  }

  /** Whether it has to be asked, whenever it was asked last. */
  get isOpen(): boolean {
    return !this.isTold || this.mistake !== undefined
  }

  get isAsking(): boolean {
    return this.#isAsking
  }

  /** Whether locks wait for its answer. */
  get isAwaited(): boolean {
    return this.#endMoment !== undefined
  }

  /** Asks it if it can be asked and has no question left to answer. */
  ask(): void {
    if (!this.object.mayAsk() || (this.#isAsking && !this.#questions.isLost())) return
    this.#isAsking = true
    this.awaitMoment()
    this.#questions.ask(this)
  }

  /** Lets locks wait for its answer, for a moment. */
  awaitMoment(): void {
    if (this.#endMoment !== undefined) return
    const end = (): void => {
      cancel()
      this.#endMoment = undefined
      this.#listener.momentIsOver()
    }
    const cancel = afterFree(MOMENT, end)
    this.#endMoment = end
  }

  /** Asks it nothing any more. */
  close(): void {
    this.#questions.forget(this)
    this.#endMoment?.()
  }

  hear({ answer, why, isRefused }: Heard): void {
    this.#isAsking = false
    this.why = why
    const counts = answer === undefined ? isRefused : this.#learn(answer)
    this.#toldBy = counts ? (this.object.connection() ?? 0) : 0
    if (this.mayLock) this.#letIn()
    this.#listener.heard()
    this.#endMoment?.()
    // It was told before the client took its connection for ready, or after it had lost it.
    if (counts && this.#toldBy === 0 && this.#listener.isAwaited()) this.ask()
    this.#listener.momentIsOver()
    if (isRefused) this.#tellRefusal()
  }

  /** Compares what it says itself with what it used; what it selects before the first lock is taken over. */
  check(): void {
    const { object } = this
    const now = object.now()
    // It is asked once it has connected: whatever was known before does not count any more.
    if (object.connection() === 0) this.#toldBy = 0
    // What was wrong has ended with its connection.
    if (this.mistake !== undefined && object.link() === undefined)
      [this.mistake, this.#toldBy] = [undefined, 0]
    if (object.follows && !this.#listener.isSettled()) this.place = { ...this.place, db: now.db }
    const { place } = this
    if (now.keyPrefix !== place.keyPrefix || (object.follows && now.db !== place.db))
      throw new ConfigError(this.#hasMoved(now))
    const server = object.server()
    if (server !== this.#server) {
      object.read() // which says more where clients share what they go by
      throw new ConfigError(
        `the client of ${this.address} connects to ${server} from now on: a lock would have two holders; ` +
          'make a new Redlock',
      )
    }
    const [username, password] = object.login()
    if (username === this.#login[0] && password === this.#login[1]) return
    this.#warnOnce(
      'credentials-changed',
      'its client has other credentials than when this Redlock was made, ' +
        'which goes on with the old ones and cannot log in with them again: make a new Redlock',
    )
  }

  /** To be called with each operation: warns once if its node has been left out for long, and again after it was back. */
  tellLeftOut(): void {
    // Of a client that is not connected, the core tells whether the node is down.
    const isAway = this.object.link() === undefined
    if (this.mayLock || this.mistake !== undefined || isAway) return this.#letIn()
    this.#leftOutSince ??= uptime()
    if (this.#isLeftOutTold || uptime() - this.#leftOutSince < LONG_OUT) return
    this.#isLeftOutTold = true
    this.#listener.warn(
      'unknown-database',
      `${this.address}: its client has not told yet which database it uses: no locks are taken on this ` +
        'node until it has',
      this.index,
    )
  }

  /** What it uses, in words. */
  tell(place = this.place): string {
    return `the client of ${this.address} uses ${inWords(place)}`
  }

  #letIn(): void {
    this.#leftOutSince = undefined
    this.#isLeftOutTold = false
  }

  /** Returns whether the answer tells which database it uses. */
  #learn({ db, followed }: Answer): boolean {
    const { place, object } = this
    const isSettled = this.#listener.isSettled()
    if (followed !== undefined && db !== followed) this.mistake = this.#hasStrayed(db, followed)
    // It has selected another one since, or before: its own account is compared with each lock.
    else if (object.follows && db !== object.now().db) return false
    else if (isSettled && db !== place.db) {
      if (object.follows) return false
      this.mistake = this.#hasMoved({ ...place, db })
    } else [this.place, this.mistake] = [{ ...place, db }, undefined]
    return true
  }

  #tellRefusal(): void {
    const { place, why, object } = this
    this.#warnOnce(
      'unknown-database',
      `its client does not tell which database it has selected (${why}); taken is database ` +
        `${place.db}, as ${object.follows ? 'it says itself' : 'in its options'}: ` +
        'give the node by a URL if that is wrong',
    )
  }

  #warnOnce(name: string, message: string): void {
    if (this.#warned.has(name)) return
    this.#warned.add(name)
    this.#listener.warn(name, `${this.address}: ${message}`, this.index)
  }

  #hasMoved(now: Place): string {
    return (
      `${this.tell(now)} now, but when this Redlock was made, it used ` +
      `${inWords(this.place)}: a lock would have two holders; make a new Redlock after select()`
    )
  }

  #hasStrayed(db: number, followed: number): string {
    return (
      `the client of ${this.address} uses database ${db}, but takes it for ${followed} and goes ` +
      'back there when it connects again, because it was not told by its own select(): a lock would have two ' +
      `holders; call select(${db}) or give it the option db, then make a new Redlock`
    )
  }
}

function inWords({ db, keyPrefix }: Place): string {
  return `database ${db}${keyPrefix === '' ? ' and no key prefix' : ` and the key prefix '${keyPrefix}'`}`
}

/** How long a lock waits for all answers to a question, if it needs no more than a majority; in milliseconds. */
const MOMENT = 20

/** How long a node is left out before a person should know it, in milliseconds. */
const LONG_OUT = 2000
