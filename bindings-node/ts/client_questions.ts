// Asks client objects for their databases. Owns that each has one question to answer at a time, however many Redlocks
// of the process want to know, and that a question keeps none of them in memory.

import type { Answer, ClientObject } from './client_objects'
import { throwUncaught } from './event_loop'

/** What became of a question: an answer, or why there is none. */
export interface Heard {
  readonly answer?: Answer
  readonly why: string
  /** Whether the server does not permit, or does not know, the question. */
  readonly isRefused: boolean
}

/** Who wants to know. */
export interface Asker {
  hear(heard: Heard): void
}

/** The questions to one client object. */
export class Questions {
  readonly #object: ClientObject
  /** Who hears the answer that is on its way; undefined if none is. */
  #askers: Askers | undefined
  /** The connection over which the question was sent, if it had one. */
  #over: unknown
  /** Who has asked since then: what the client has selected meanwhile may not be in that answer. */
  #later = new Askers()
  /** The connection over which the last question was refused, and what was heard. */
  #refused: { readonly over: unknown; readonly heard: Heard } | undefined

  constructor(object: ClientObject) {
    this.#object = object
  }

  /**
   * Asks the client, and tells `asker` the answer. If the server has refused the question over the present connection, it
   * tells that at once: another question would end a transaction of the user's, too.
   */
  ask(asker: Asker): void {
    if (this.#askers !== undefined && !this.isLost()) return this.#later.add(asker)
    const refused = this.#refused
    if (refused !== undefined && refused.over === this.#object.link())
      return tell(asker, refused.heard)
    const askers = this.#askers ?? new Askers()
    askers.add(asker)
    void this.#send(askers)
  }

  /**
   * Whether the client has another connection than when it was asked, or has one now: some lose what was not answered
   * when a connection ends, and a question that waited for one may have been lost with the first.
   */
  isLost(): boolean {
    const now = this.#object.link()
    return now !== undefined && now !== this.#over
  }

  /** Tells `asker` nothing any more. */
  forget(asker: Asker): void {
    this.#askers?.delete(asker)
    this.#later.delete(asker)
  }

  async #send(askers: Askers): Promise<void> {
    const over = this.#object.link()
    ;[this.#askers, this.#over] = [askers, over]
    const heard = await this.#hear()
    // Nobody waits for this answer any more if the question was taken for lost.
    if (this.#askers !== askers || this.#over !== over) return
    this.#askers = this.#over = undefined
    const link = this.#object.link()
    this.#refused = heard.isRefused && link !== undefined ? { over: link, heard } : undefined
    this.#goOn(askers, heard)
  }

  /** Tells the askers the answer, once the next question is sent. */
  #goOn(askers: Askers, heard: Heard): void {
    const later = this.#later
    this.#later = new Askers()
    const mayAsk = !heard.isRefused && !later.isEmpty() && this.#object.mayAsk()
    if (mayAsk) void this.#send(later)
    askers.tell(heard)
    if (!mayAsk) later.tell(heard.isRefused ? heard : NOT_ASKED)
  }

  async #hear(): Promise<Heard> {
    try {
      return { answer: await this.#object.ask(), why: '', isRefused: false }
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      return { why, isRefused: REFUSAL.test(why) }
    }
  }
}

/** Those who ask, as long as somebody else refers to them. */
class Askers {
  readonly #refs = new Set<WeakRef<Asker>>()
  #limit = FEW

  add(asker: Asker): void {
    if (this.#refs.size >= this.#limit) this.#prune()
    this.#refs.add(refOf(asker))
  }

  delete(asker: Asker): void {
    this.#refs.delete(refOf(asker))
  }

  isEmpty(): boolean {
    this.#prune()
    return this.#refs.size === 0
  }

  tell(heard: Heard): void {
    for (const ref of this.#refs) {
      const asker = ref.deref()
      if (asker !== undefined) tell(asker, heard)
    }
  }

  #prune(): void {
    for (const ref of this.#refs) if (ref.deref() === undefined) this.#refs.delete(ref)
    this.#limit = Math.max(FEW, 2 * this.#refs.size)
  }
}

/** The questions to the client object `client`, for all Redlocks of the process. */
export function questionsTo(client: object, object: ClientObject): Questions {
  const found = all.get(client) ?? new Questions(object)
  all.set(client, found)
  return found
}

/** A listener of the user's that throws keeps the answer from nobody. */
function tell(asker: Asker, heard: Heard): void {
  try {
    asker.hear(heard)
  } catch (thrown) {
    throwUncaught(thrown)
  }
}

function refOf(asker: Asker): WeakRef<Asker> {
  const ref = refs.get(asker) ?? new WeakRef(asker)
  refs.set(asker, ref)
  return ref
}

const all = new WeakMap<object, Questions>()
const refs = new WeakMap<Asker, WeakRef<Asker>>()

const NOT_ASKED: Heard = { why: '', isRefused: false }

/** What a server answers that does not permit, or does not know, the question. */
const REFUSAL = /^(?:NOPERM|ERR unknown (?:sub)?command)/i

/** How many askers are not worth a look for collected ones. */
const FEW = 16
