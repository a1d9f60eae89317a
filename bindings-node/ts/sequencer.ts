// The class `Sequencer`: the resources of a lock and its fencing token as one text,
// `resource@token`, which a holder hands to others. Owns its type and what is said of a wrong one;
// the native half reads and writes the text.

import { describe, wrongType } from './errors'
import { errorOf } from './failures'
import { native, type NativeLease } from './native'

/**
 * The names of the locked resources and the fencing token of one lock, as one text that a holder hands
 * to others: they ask {@link Redlock.verify} whether that lock is still the one that is held.
 *
 * Several names are joined by `,`. In a name, `%`, `,`, `@` and bytes outside of printable ASCII are
 * written as `%XX`. In JSON it is its text.
 *
 * @example
 * ```js
 * import { Sequencer } from 'quorlock'
 *
 * const sequencer = Sequencer.parse('stock%40berlin,stock%40paris@17')
 * console.log(sequencer.resources, sequencer.token) // [ 'stock@berlin', 'stock@paris' ] 17
 * ```
 */
export class Sequencer {
  /** The names of the resources. */
  readonly resources: readonly string[]
  /** The fencing token. */
  readonly token: number
  readonly #text: string

  private constructor(text: unknown) {
    if (typeof text !== 'string')
      throw wrongType(`a sequencer must be a string, not ${describe(text)}`)
    const parts = native.readSequencer(text)
    if ('message' in parts) throw errorOf(parts, [], 'other')
    this.resources = parts.resources
    this.token = parts.token
    this.#text = parts.text
  }

  /** The sequencer that `text` is. Throws a {@link ConfigError} if it is none. */
  static parse(text: string): Sequencer {
    return new Sequencer(text)
  }

  /** Its text. */
  toString(): string {
    return this.#text
  }

  /** Its text. */
  toJSON(): string {
    return this.#text
  }
}

/** That of a lease; undefined without a fencing token. */
export function sequencerOf(lease: NativeLease): Sequencer | undefined {
  const text = native.sequencer(lease)
  return text ? Sequencer.parse(text) : undefined
}

/** The text of a sequencer, given as one or as text. */
export function readSequencer(given: unknown): string {
  return (given instanceof Sequencer ? given : Sequencer.parse(given as string)).toString()
}
