// Checks whether client objects still use the settings that were read from them. If not, node-redlock with
// the same clients would lock other keys than this library, and both would grant one lock: the user must
// learn of that.

import type { Answer, ClientObject, Place } from './client_objects'
import { ConfigError, QuorumUnreachableError } from './errors'
import { afterAlive } from './bridge'
import { uptime } from './event_loop'
import { orAborted, reasonOf } from './signals'

/** A client object with what it used when it was read. */
interface Watched {
  readonly object: ClientObject
  readonly index: number
  readonly login: readonly [unknown, unknown]
  place: Place
  /** Whether its database is known: the server told it, or it can have no other than it says. */
  isKnown: boolean
  isAsked: boolean
  /** Whether it has not answered the last question yet. */
  isAsking: boolean
  /** Whether a question to it has ended. */
  hasAnswered: boolean
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
  #isSettled: boolean
  /** When the clients were asked last, once the first lock was allowed. */
  #askedAt = 0
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
              ...{ isKnown: false, isAsked: false, isAsking: false, hasAnswered: false },
              isLoginTold: false,
            },
          ],
    )
    this.#isSettled = this.#watched.length === 0
    this.#compare()
  }

  /**
   * Throws a {@link ConfigError} if a client uses other keys by now than those that this Redlock
   * locks. Returns a promise that rejects with it if clients have to be asked: before the first lock,
   * where it rejects with a {@link QuorumUnreachableError} if too few of them answer in time, and
   * before a lock after a second without such a question. `patience` tells for how many milliseconds the caller waits;
   * `null` without a limit.
   */
  check(patience?: () => number | null): Promise<void> | undefined {
    for (const watched of this.#watched) this.#checkOne(watched)
    if (!this.#isSettled) {
      this.#asking ??= this.#settle().finally(() => (this.#asking = undefined))
      const limit = patience?.() ?? PATIENCE
      return limit < PATIENCE ? this.#within(limit, this.#asking) : this.#asking
    }
    this.#throwMistake()
    return this.#askAgain()
  }

  #throwMistake(): void {
    if (this.#mistake !== undefined) throw new ConfigError(this.#mistake)
  }

  /**
   * Asks the clients again, to notice what they have selected since. A lock waits for a majority of
   * their answers, but only for a moment: a client may be busy with a command that blocks. The later
   * answers count for the next lock.
   */
  #askAgain(): Promise<void> | undefined {
    if (uptime() - this.#askedAt < ASK_AGAIN_AFTER) return undefined
    this.#askedAt = uptime()
    const answers = this.#watched.flatMap((watched) => {
      const answer = watched.isAsking ? undefined : watched.object.ask()
      return answer === undefined ? [] : [this.#learn(watched, answer)]
    })
    if (answers.length === 0) return undefined
    return this.#mostOf(answers).then(() => this.#throwMistake())
  }

  #mostOf(answers: readonly Promise<void>[]): Promise<void> {
    return new Promise((resolve) => {
      const cancel = afterAlive(PATIENCE_AGAIN, resolve)
      let count = 0
      for (const answer of answers)
        void answer.then(() => {
          count += 1
          if (count * 2 <= this.#size && count < answers.length) return
          cancel()
          resolve()
        })
    })
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

  /** Asks every client whose database is not known, all at once, until a majority is known. */
  async #settle(): Promise<void> {
    for (const watched of this.#watched) {
      if (watched.isKnown || watched.isAsked) continue
      const answer = watched.object.ask()
      watched.isKnown = answer === undefined
      watched.isAsked = answer !== undefined
      if (answer !== undefined) void this.#learn(watched, answer)
    }
    await this.#majority()
    this.#throwMistake()
    for (const watched of this.#watched) this.#checkOne(watched)
    const known = this.#watched.filter(({ isKnown }) => isKnown)
    this.#compare()
    this.#isSettled = true
    this.#askedAt = uptime()
    // All must be equal: those that have not answered yet are assumed to be the same as the others.
    const db = known[0]?.place.db
    const found = new Map<number, number>()
    for (const watched of this.#watched) {
      const { index, object, isKnown } = watched
      if (object.follows) continue
      if (!isKnown && db !== undefined) watched.place = { ...watched.place, db }
      if (watched.place.db !== object.now().db) found.set(index, watched.place.db)
    }
    if (found.size === 0 || this.#listener.databases(found)) return
    this.#mistake = 'the clients have selected another database: make a new Redlock after select()'
    throw new ConfigError(this.#mistake)
  }

  /**
   * The answers for a caller that waits for them `millis` milliseconds at most. A loop that was busy until then has yet
   * to read them.
   */
  #within(millis: number, asking: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const refuse = (): void => reject(this.#untold(millis))
      const begun = uptime()
      let cancel = afterAlive(millis, () => {
        if (uptime() - begun < millis + LATE) refuse()
        else cancel = afterAlive(TO_READ, refuse)
      })
      void asking.then(resolve, reject).finally(() => cancel())
    })
  }

  #untold(millis: number): QuorumUnreachableError {
    const untold = this.#unknown().map(({ index }) => this.#addressOf(index))
    const message = `${untold.join(', ')}: the client has not told within ${Math.round(millis)} ms which database it uses`
    return new QuorumUnreachableError(message)
  }

  #unknown(): Watched[] {
    return this.#watched.filter(({ isKnown }) => !isKnown)
  }

  #majority(): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = afterAlive(PATIENCE, () => reject(this.#untold(PATIENCE)))
      this.#onAnswer = (): void => {
        if ((this.#size - this.#unknown().length) * 2 <= this.#size) return
        cancel()
        resolve()
      }
      this.#onAnswer()
    })
  }

  async #learn(watched: Watched, answer: Promise<Answer>): Promise<void> {
    const isFirst = !watched.hasAnswered
    watched.isAsking = true
    try {
      const { db, followed } = await answer
      const { place } = watched
      if (followed !== undefined) {
        if (db !== followed) this.#mistake ??= this.#hasStrayed(watched, db, followed)
      } else if (!this.#isSettled) watched.place = { ...place, db }
      else if (db !== place.db) this.#mistake ??= this.#hasMoved(watched, { ...place, db })
    } catch (error) {
      if (isFirst) this.#tellUnknown(watched, error)
    }
    watched.isAsking = false
    watched.hasAnswered = true
    watched.isKnown = true
    this.#onAnswer()
  }

  #tellUnknown({ object, index, place }: Watched, error: unknown): void {
    if (object.follows && !mayStray(error)) return
    const why = error instanceof Error ? error.message : String(error)
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
  #compare(): void {
    const isTold = ({ object, isKnown }: Watched): boolean => object.follows || isKnown
    const first = this.#watched.find(isTold) ?? this.#watched[0]
    if (first === undefined) return
    const other = this.#watched.find((watched) => {
      const { place } = watched
      const hasOtherDb = isTold(watched) && isTold(first) && place.db !== first.place.db
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

/**
 * Whether a client that follows what it selects may use another database in spite of this error. The next
 * connection of such a client begins with what it follows, and the server carries out nothing before a
 * log-in.
 */
function mayStray(error: unknown): boolean {
  const { name, message } = error as Error
  return name === 'ReplyError' && !/^(?:NOAUTH|WRONGPASS) /.test(message)
}

function inWords({ db, keyPrefix }: Place): string {
  return `database ${db}${keyPrefix === '' ? ' and no key prefix' : ` and the key prefix '${keyPrefix}'`}`
}

/** How long clients may take to tell their databases before the first lock, in milliseconds. */
const PATIENCE = 1000

/** By how much a timer is late if the event loop was busy, in milliseconds. */
const LATE = 20

/** How long a loop that was busy has to read what has come meanwhile, in milliseconds. */
const TO_READ = 150

/** How long locks go without asking the clients for their databases again, in milliseconds. */
const ASK_AGAIN_AFTER = 1000

/** How long one lock waits for such an answer at most, in milliseconds. */
const PATIENCE_AGAIN = 20
