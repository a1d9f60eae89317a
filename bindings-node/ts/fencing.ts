// A fence in one Redis or Valkey server. Owns how it is called; the script is the core's.

import { asObject } from './address'
import { ConfigError, describe, StaleTokenError, wrongType } from './errors'
import { native } from './native'

/** What may be a word of a command. */
export type Word = string | number | Buffer

/**
 * Writes to a Redis or Valkey server that are refused if a later holder has written.
 *
 * `client` is one of ioredis (without a `keyPrefix`) or node-redis. `key` keeps the highest token that
 * was seen; it has no expiry, and must stay as long as the data that it guards. One script compares,
 * raises `key` and writes: nothing comes in between. Give each lock a key of its own. Names are those
 * on the server. On a server that is a node of the locks, neither `key` nor a key that is written may be
 * the name of a lock: a lock is a key of its name there, which the write would destroy. In a Redis
 * Cluster, the keys written must be in the slot of `key`.
 *
 * Throws a {@link ConfigError} for what is no such client.
 *
 * @example
 * ```js
 * const fence = new FencedRedis(client, 'fence:invoice:42')
 * await redlock.using('invoice:42', 5000, async (signal, { lock }) => {
 *   await fence.set('state:42', 'paid', lock.fencingToken)
 * })
 * ```
 */
export class FencedRedis {
  /** The key of the fence. */
  readonly key: string
  readonly #evaluate: (words: Word[]) => Promise<unknown>

  constructor(client: object, key: string) {
    if (typeof key !== 'string' || key === '')
      throw wrongType(`the key of a fence must be a string with a character, not ${describe(key)}`)
    this.key = key
    this.#evaluate = evaluatorOf(client)
  }

  /**
   * Sets `name` to `value`, as the holder with the fencing token `token`. Rejects with
   * {@link StaleTokenError} if a larger token was seen, and with the client's errors; if that is a
   * lost connection, the write may or may not have happened.
   */
  async set(name: string, value: Word, token: number | undefined): Promise<void> {
    await this.write(token, 'SET', name, value)
  }

  /**
   * Runs `command`, as `'HSET', 'bill:42', 'state', 'paid'`; resolves with the server's answer.
   * Rejects as {@link set} does. The fence is raised also if the command fails.
   */
  async write(token: number | undefined, ...command: Word[]): Promise<unknown> {
    const number = readToken(token)
    if (command.length === 0) throw wrongType('write() takes a command behind the token')
    for (const word of command) checkWord(word)
    if (command.slice(1).some((word) => String(word) === this.key))
      throw new ConfigError(`'${this.key}' keeps the fence's tokens: write to another key`)
    const answer = await this.#evaluate([this.key, number, ...command])
    const [wasWritten, rest] = answer as [number, unknown]
    if (!wasWritten) throw new StaleTokenError(this.key, number, Number(rest))
    return rest
  }
}

/** A client of node-redis, of one server or of several. */
interface Evaluator {
  eval(script: string, options: { keys: unknown[]; arguments: unknown[] }): Promise<unknown>
}

function evaluatorOf(client: unknown): (words: Word[]) => Promise<unknown> {
  const object = asObject(client)
  const { status, eval: evaluate } = object ?? {}
  if (typeof status === 'string' && typeof evaluate === 'function') {
    if (asObject(object?.['options'])?.['keyPrefix'])
      throw new ConfigError('a fence takes no client with a keyPrefix, which commands would lack')
    return (words) => evaluate.call(client, native.FENCE, 1, ...words) as Promise<unknown>
  }
  if (typeof evaluate === 'function' && 'isOpen' in (object ?? {})) {
    const text = (word: Word): string | Buffer => (typeof word === 'number' ? String(word) : word)
    // In the legacy mode of version 4, only `v4` returns promises.
    const isLegacy = asObject(object?.['options'])?.['legacyMode'] === true
    const target = (isLegacy ? object?.['v4'] : undefined) ?? client
    // Not sendCommand(), to which clusters and sentinels give other parameters.
    return ([key, ...rest]) =>
      (target as Evaluator).eval(native.FENCE, { keys: [key], arguments: rest.map(text) })
  }
  throw wrongType(`a fence takes a client of ioredis or node-redis, not ${describe(client)}`)
}

function checkWord(word: unknown): void {
  if (typeof word !== 'string' && typeof word !== 'number' && !Buffer.isBuffer(word))
    throw wrongType(`a word of a command must be a string, number or Buffer, not ${describe(word)}`)
}

function readToken(token: unknown): number {
  if (token == null)
    throw wrongType(
      'there is no fencing token: the lock has fencing: false, or was taken over and not yet confirmed',
    )
  if (typeof token !== 'number')
    throw wrongType(
      `a fencing token must be a number, as of lock.fencingToken, not ${describe(token)}`,
    )
  if (!Number.isSafeInteger(token) || token < 0)
    throw new ConfigError(`a fencing token must be a whole number from 0 to 2^53 - 1, not ${token}`)
  return token
}
