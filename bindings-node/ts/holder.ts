// Who holds a lock, in words. Owns the reading of the setting `owner`; the native half writes and asks.

import { inspect } from 'node:util'

import { ConfigError, describe, QuorumUnreachableError, wrongType } from './errors'
import type { HolderParts } from './native'

/** What a {@link Redlock} tells others of itself: its own words by name. */
export type Owner = Readonly<Record<string, string | number | boolean>>

/** Who holds a lock, as far as it has told. As a string it is its {@link Holder.text}. */
export class Holder {
  /** What it says of itself: its own words, `host` and `pid`. Empty if it says nothing. */
  readonly owner: Readonly<Record<string, string>>
  /** When it acquired the lock, in milliseconds of its `Date.now()`; undefined if it says nothing. */
  readonly since: number | undefined
  /** For example `billing on web-3, pid 812, for 4 s`. */
  readonly text: string

  /** @internal */
  constructor({ owner, since, text }: HolderParts) {
    this.owner = owner
    this.since = since
    this.text = text
  }

  /** Its {@link text}. */
  toString(): string {
    return this.text
  }

  [inspect.custom](): string {
    return `<Holder ${this.text}>`
  }
}

/** The holder, from the native half's values. */
export function holderOf(parts: unknown): Holder | undefined {
  return parts === undefined ? undefined : new Holder(parts as HolderParts)
}

/** What `asking` ends with; undefined where too few nodes can be asked. */
export async function unlessUnreachable<T>(asking: Promise<T>): Promise<T | undefined> {
  try {
    return await asking
  } catch (error) {
    if (error instanceof QuorumUnreachableError) return undefined
    throw error
  }
}

/** The words of the setting `owner`; undefined if nothing is to be told. */
export function readOwner(given: unknown): Record<string, string> | undefined {
  if (given === undefined || given === null) return undefined
  if (typeof given !== 'object' || Array.isArray(given))
    throw wrongType(`owner must be an object of words, not ${describe(given)}`)
  const words = Object.entries(given).map(([name, value]) => [name, word(name, value)])
  return Object.fromEntries(words) as Record<string, string>
}

/** `owner` is told of all locks of a Redlock, or of none. */
export function refuseOwner(options: object): void {
  if ('owner' in options && options.owner !== undefined && options.owner !== null)
    throw new ConfigError('owner is a setting of the Redlock, and the same for all of its locks')
}

function word(name: string, value: unknown): string {
  if (['string', 'number', 'boolean'].includes(typeof value)) return String(value)
  throw wrongType(`owner.${name} must be a string, not ${describe(value)}`)
}
