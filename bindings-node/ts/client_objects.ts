// Reads the settings of other libraries' client objects: ioredis 4 to 6, node-redis 4 to 6. Only reads their
// state, except that they must be asked for the selected database, and node-redis 4 tells by an event that it has connected.

import type { EventEmitter } from 'node:events'

import { asObject, readParts, unusable } from './address'
import { describe } from './errors'
import type { NodeSpec } from './native'

/** A client object of another library whose settings were read. */
export interface ClientObject {
  /** The settings that it uses now. Throws a {@link ConfigError} if it cannot be used. */
  read(): NodeSpec
  /** The settings that may change during its life and decide which keys are locked. */
  now(): Place
  /** Whether it follows what it selects, so that {@link now} tells it. */
  readonly follows: boolean
  /** Where it goes when it connects again, in words. */
  server(): string
  /** Its user name and password now. */
  login(): readonly [unknown, unknown]
  /**
   * The number of its connection, as far as it shows one: another connection may use another database.
   * 0 while it connects; undefined if it cannot be asked, and is taken for what it says itself.
   */
  connection(): number | undefined
  /** What tells its connection from others; undefined while it is not ready. */
  link(): unknown
  /** Whether it can be asked now. */
  mayAsk(): boolean
  /** Asks it for the database that it uses. */
  ask(): Promise<Answer>
}

/** Which database a client uses. */
export interface Answer {
  /** By the server's account. */
  readonly db: number
  /** By its own, where it has one. */
  readonly followed?: number
}

/** Which keys of a server a client uses. */
export interface Place {
  readonly db: number
  readonly keyPrefix: string
}

/** Wraps the client object `client`; undefined if it is none. */
export function clientObject(client: object): ClientObject | undefined {
  const object = client as Record<string, unknown>
  if (object['isCluster'] === true) throw unusable('an ioredis Cluster is not one independent node')
  const isIoredis =
    typeof object['defineCommand'] === 'function' && typeof object['status'] === 'string'
  if (isIoredis) return ofIoredis(object)
  if (typeof object['sendCommand'] === 'function' || typeof object['connect'] === 'function')
    return ofNodeRedis(client, object)
  return undefined
}

/** Where a server is. */
interface Server {
  readonly host?: unknown
  readonly port?: unknown
  readonly path?: unknown
}

/** ioredis keeps its settings, completed, in `options`; what it has selected, in `condition`. */
function ofIoredis(client: Record<string, unknown>): ClientObject {
  const options = asObject(client['options'])
  // Every version has a connector; mocks have none, and no server either.
  if (options === undefined || asObject(client['connector']) === undefined) {
    throw unusable(
      'this client looks like ioredis but cannot be read (memory://name is a node for tests)',
    )
  }
  if (options['sentinels'] != null)
    throw unusable('an ioredis client of sentinels may lead to another server after a failover')
  if (options['Connector'] != null)
    throw unusable("this ioredis client's own Connector cannot be followed")
  const selected = (): unknown => {
    // While it reconnects, it remembers the database that it had selected, and selects that again at the end.
    const condition = client['prevCondition'] ?? client['condition']
    return asObject(condition)?.['select'] ?? options['db']
  }
  // What its TLS settings say of the server goes before the rest. Read with each lock, so that it must not take long.
  const server = (): Server => {
    const tls = asObject(options['tls'])
    const part = (name: 'host' | 'port' | 'path'): unknown =>
      tls !== undefined && Object.hasOwn(tls, name) ? tls[name] : options[name]
    return { host: part('host'), port: part('port'), path: part('path') }
  }
  return {
    read: () => readParts({ ...options, ...server() }, server().path, selected()),
    now: () => placeOf(selected(), options['keyPrefix']),
    follows: true,
    server: () => inWords(server()),
    login: () => [options['username'], options['password']],
    // It begins each connection with what it says itself: only a SELECT that it has not noticed is asked for.
    connection: () => (isElsewhere(client) ? 0 : canAskIoredis(client) ? 1 : undefined),
    link: () => (client['status'] === 'ready' ? client['stream'] : undefined),
    mayAsk: () => canAskIoredis(client),
    ask: () => askIoredis(client),
  }
}

/**
 * Whether a client of ioredis sends the commands that it gets now to another database than the one that it had selected: it
 * connects again with that of its options, and selects the other one after all that waits for the connection.
 */
function isElsewhere(client: Record<string, unknown>): boolean {
  const [before, now] = [asObject(client['prevCondition']), asObject(client['condition'])]
  return client['status'] !== 'end' && before != null && before['select'] !== now?.['select']
}

/** Whether a client of ioredis has a connection, or will have one, and may send a question over it. */
function canAskIoredis(client: Record<string, unknown>): boolean {
  const mayAsk = client['status'] === 'ready' || hasQueued(client)
  const condition = asObject(client['condition'])
  return mayAsk && !isElsewhere(client) && condition !== undefined && !condition['subscriber']
}

/**
 * ioredis follows the command only if it is spelt `select`, and then selects the same again on each new
 * connection.
 */
async function askIoredis(client: Record<string, unknown>): Promise<Answer> {
  const followed = Number(asObject(client['condition'])?.['select'] ?? 0)
  // By a pipeline, because it never overtakes the commands that wait for the connection.
  const pipeline = (client as unknown as Pipelines).pipeline([['client', 'info']])
  const [error, info] = (await pipeline.exec())?.[0] ?? [new Error('no reply'), undefined]
  if (error) throw error
  return { db: databaseIn(info), followed }
}

/** node-redis: `options` with a `socket`; absent parts mean the default. */
function ofNodeRedis(client: object, object: Record<string, unknown>): ClientObject {
  // A client that a sentinel client lends has no options of its own, and no events.
  const isLent = !('options' in client) && !('on' in client) && 'isReady' in client
  if (isLent || NOT_ONE_NODE.some((name) => name in client)) {
    throw unusable(
      `${describe(client)} is a pool, cluster or sentinel client, not one client of one node`,
    )
  }
  const isClient = 'isOpen' in client || 'isReady' in client
  const options = object['options'] === undefined ? {} : asObject(object['options'])
  if (!isClient || options === undefined)
    throw unusable(`${describe(client)} is no client of ioredis or node-redis`)
  const hasLogin = options['username'] != null || options['password'] != null
  if (options['credentialsProvider'] != null && !hasLogin)
    throw unusable("this client's credentialsProvider is code that cannot be taken over")
  countReady(object)
  // Versions without prefixes accept the option and ignore it.
  const prefix = (): unknown => ('_keyPrefix' in client ? options['keyPrefix'] : undefined)
  const read = (): NodeSpec => {
    const socket = socketOf(object, options)
    const { username, password } = options
    const keyPrefix = prefix()
    const tls = socket['tls'] === true ? socket : socket['tls']
    const parts = { host: socket['host'], port: socket['port'], username, password, keyPrefix, tls }
    return readParts(parts, socket['path'], options['database'])
  }
  return {
    read,
    now: () => placeOf(options['database'], prefix()),
    follows: false,
    server: () => (hasCopied(object) ? '' : inWords(asObject(options['socket']) ?? {})),
    login: () => [options['username'], options['password']],
    connection: () => connectionOfNodeRedis(object),
    link: () => connectionOfNodeRedis(object) || undefined,
    mayAsk: () => object['isOpen'] === true,
    ask: () => askNodeRedis(object, options),
  }
}

/**
 * Where a client of node-redis connects to. It writes the server of its URL into the `socket` that it was given, and other
 * clients that were given the same object do so, too.
 */
function socketOf(
  client: Record<string, unknown>,
  options: Record<string, unknown>,
): Record<string, unknown> {
  const socket = asObject(options['socket']) ?? {}
  const named = serverIn(options['url'], socket)
  if (Object.entries(named).every(([name, value]) => value === socket[name])) return socket
  // Without a port in its URL, it took the one that was there when it was made.
  const isWhole = 'path' in named || 'port' in named || socket['port'] == null
  const own = { ...socket, ...named }
  if (hasCopied(client) && isWhole) return own
  throw unusable(
    `the client of ${inWords(own)} shares its socket options with one of ${inWords(socket)}, so that nobody can tell where ` +
      'it connects to; give each client an object of its own',
  )
}

/** What a URL says of the server, whatever the `socket` of its client says. */
function serverIn(url: unknown, socket: Record<string, unknown>): Record<string, unknown> {
  if (typeof url !== 'string' || url === '') return {}
  const path = /^unix:\/\/(?:[^@/]*@)?(\/[^?#]*)/.exec(url)?.[1]
  if (path !== undefined) return { path: decodeURIComponent(path) }
  if (socket['path'] != null) return {}
  const { hostname, port } = new URL(url)
  const host = hostname.replace(/^\[(.*)\]$/, '$1')
  const isHost = [hostname, host].includes(String(socket['host']))
  return { ...(!isHost && { host }), ...(port !== '' && { port: Number(port) }) }
}

/** Whether a client of node-redis connects by a copy of its options: since version 5. */
function hasCopied(client: Record<string, unknown>): boolean {
  return 'socketEpoch' in client
}

function connectionOfNodeRedis(client: Record<string, unknown>): number | undefined {
  if (client['isOpen'] !== true) return undefined
  return client['isReady'] === false
    ? 0
    : Number(client['socketEpoch'] ?? counters.get(client)?.[COUNT])
}

/** Counts the connections of a client of version 4, which does not do so itself: once for all copies of this package. */
function countReady(client: Record<string, unknown>): void {
  if ('socketEpoch' in client || counters.has(client)) return
  const { on, listeners } = client as Partial<Pick<EventEmitter, 'on' | 'listeners'>>
  const known = listeners?.call(client, 'ready').find((listener) => COUNT in listener)
  const counter = (known as Counter | undefined) ?? makeCounter()
  if (known === undefined) on?.call(client, 'ready', counter)
  counters.set(client, counter)
}

function makeCounter(): Counter {
  const counter: Counter = Object.assign(() => void (counter[COUNT] += 1), { [COUNT]: 1 })
  return counter
}

/** The options that node-redis was created with do not say what it has selected since. */
async function askNodeRedis(
  client: Record<string, unknown>,
  options: Record<string, unknown>,
): Promise<Answer> {
  // In the legacy mode of version 4, only `v4` returns promises. Later versions ignore the option.
  const asked = options['legacyMode'] === true ? (client['v4'] ?? client) : client
  return { db: databaseIn(await (asked as CommandSender).sendCommand(['CLIENT', 'INFO'])) }
}

/** Whether a client of ioredis is about to connect, and keeps commands of the program for then. */
function hasQueued(client: Record<string, unknown>): boolean {
  return (QUEUES[String(client['status'])] ?? []).some(
    (name) => Number(asObject(client[name])?.['length'] ?? 0) > 0,
  )
}

function databaseIn(info: unknown): number {
  const found = /(?:^| )db=(\d+)/.exec(String(info))
  if (found === null) throw new Error('the reply to CLIENT INFO names no database')
  return Number(found[1])
}

function inWords({ host, port, path }: Server): string {
  return path ? String(path) : `${String(host ?? 'localhost')}:${String(port ?? 6379)}`
}

function placeOf(db: unknown, keyPrefix: unknown): Place {
  return { db: Number(db ?? 0), keyPrefix: String(keyPrefix ?? '') }
}

interface CommandSender {
  sendCommand(words: string[]): Promise<unknown>
}

interface Pipelines {
  pipeline(commands: string[][]): { exec(): Promise<[Error | null, unknown][] | null> }
}

/** Where copies of this package find the count: a test program loads one for each of its files, or more. */
const COUNT: unique symbol = Symbol.for('quorlock.connections')

/** Counts how often a client of node-redis 4 has connected since it was read first, and once more. */
type Counter = (() => void) & { [COUNT]: number }
const counters = new WeakMap<object, Counter>()

/** Where ioredis keeps commands that were not sent yet, or not answered before the connection was lost. */
const KEPT = ['offlineQueue', 'prevCommandQueue']
/** The same by its status; once it has a connection, its own first commands are in the third queue. */
const QUEUES: Readonly<Record<string, readonly string[]>> = {
  connecting: [...KEPT, 'commandQueue'],
  reconnecting: [...KEPT, 'commandQueue'],
  connect: KEPT,
}

/** Members of node-redis' pools, clusters and sentinels that its clients do not have. */
const NOT_ONE_NODE = [
  'totalClients',
  'masters',
  'shards',
  'slots',
  'getSentinelNode',
  'sentinelRootNodes',
]
