// Reads a node's address from an object of parts: the user's own, or one that was read from a client object.
// Owns which parts are accepted; knows no client library.

import { ConfigError, describe, wrongType } from './errors'
import type { NodeSpec, TlsSpec } from './native'
import { nearest } from './unknown'

/**
 * A node in parts, where a URL will not do. The options of ioredis and node-redis can be passed as
 * they are: of `socket` and `database`, too, and what says nothing about where the node is
 * (`connectTimeout`, `lazyConnect` and so on) is ignored.
 */
export interface NodeAddress {
  /** A URL, with which only `keyPrefix` and `durable` can be combined. */
  readonly url?: string
  /** Default `localhost`. */
  readonly host?: string
  /** Default 6379. */
  readonly port?: number
  /** The path of a unix socket, in place of `host` and `port`. */
  readonly path?: string
  readonly username?: string
  readonly password?: string
  /** The database to select; also as `database`. Default 0. */
  readonly db?: number
  /** What every key on this node begins with. Default nothing. */
  readonly keyPrefix?: string
  /**
   * Whether the server writes every change to disk before it answers (`appendonly yes`,
   * `appendfsync always`), so that it forgets no lock in a restart. Only needed where the server
   * does not let itself be asked. In a URL: `?durable=true`. Default false.
   */
  readonly durable?: boolean
  /**
   * TLS with the settings of `tls.connect`, of which `ca`, `cert`, `key`, `servername` and
   * `rejectUnauthorized` count.
   */
  readonly tls?: boolean | object
  /** `host`, `port`, `path` and `tls`, as node-redis takes them. */
  readonly socket?: object
  /** As `db`. */
  readonly database?: number
}

/** The user's own object of parts. */
export function readAddress(client: object, given: Record<string, unknown>): string | NodeSpec {
  const named = Object.keys(given).filter((key) => given[key] != null)
  if (!named.some((key) => PLACES.includes(key))) {
    throw unusable(
      `${describe(client)} is no client of ioredis or node-redis, and has no host, path or url`,
    )
  }
  for (const key of named) checkPart(key, KNOWN)
  const { durable } = given
  if (durable != null && typeof durable !== 'boolean')
    throw wrongType(`durable of a node must be true or false, not ${describe(durable)}`)
  if (given['url'] != null) return readUrl(given)
  const parts = withSocket(given)
  return { ...readParts(parts, parts['path'], readDatabase(given)), durable: durable === true }
}

/** A node from the parts that both client libraries have; absent parts have their defaults. */
export function readParts(parts: Record<string, unknown>, path: unknown, db: unknown): NodeSpec {
  const spec: Record<string, unknown> = {}
  const set = (name: string, value: unknown, kind: 'string' | 'number'): void => {
    if (value === undefined || value === null || value === '') return
    // ioredis takes ports and databases as text, too.
    const read = kind === 'number' && typeof value === 'string' ? Number(value) : value
    if (typeof read !== kind)
      throw unusable(`the ${name} of a node must be a ${kind}, not ${describe(value)}`)
    spec[name] = read
  }
  if (path) set('path', path, 'string')
  else {
    set('host', parts['host'], 'string')
    set('port', parts['port'], 'number')
  }
  set('username', parts['username'], 'string')
  set('password', parts['password'], 'string')
  set('db', db, 'number')
  set('keyPrefix', parts['keyPrefix'], 'string')
  const tls = parts['tls']
  if (tls === true) spec['tls'] = {}
  else if (tls) spec['tls'] = readTls(asObject(tls))
  return spec as NodeSpec
}

/** The error for a node that cannot be used, with what to pass instead. */
export function unusable(problem: string): ConfigError {
  return wrongType(
    `${problem}; pass a URL such as 'rediss://user:password@host:6379/0', an object of host, port and so on, or a plain client of ioredis or node-redis`,
  )
}

/** `value` if it is an object. */
export function asObject(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)
    : undefined
}

/**
 * Refuses a part that looks like a misspelt one, and one that leads to another place. Any other part is an
 * option of a client library that does not say where the node is.
 */
function checkPart(key: string, known: readonly string[]): void {
  if (known.includes(key) || HARMLESS.has(key)) return
  const blocked = BLOCKED[key]
  if (blocked !== undefined) throw unusable(`the '${key}' of a node ${blocked}`)
  const meant = SYNONYMS[key] ?? nearest(key, known)
  if (meant !== undefined)
    throw new ConfigError(`a node address has no part '${key}': did you mean '${meant}'?`)
}

/** A URL with the parts that may be beside it. */
function readUrl(parts: Record<string, unknown>): string {
  const { url, keyPrefix, durable } = parts
  if (typeof url !== 'string') throw wrongType('the url of a node must be a string')
  const second = PARTS.find((part) => parts[part] != null)
  const ofSocket = Object.keys(asObject(parts['socket']) ?? {}).find((key) => PLACES.includes(key))
  if (second !== undefined || ofSocket !== undefined)
    throw new ConfigError(
      `a node address with a url takes no '${second ?? `socket.${ofSocket}`}' beside it`,
    )
  if (keyPrefix != null && typeof keyPrefix !== 'string')
    throw unusable(`the keyPrefix of a node must be a string, not ${describe(keyPrefix)}`)
  const query = [
    ...(keyPrefix ? [`key_prefix=${encodeURIComponent(keyPrefix)}`] : []),
    ...(durable === true ? ['durable=true'] : []),
  ]
  if (query.length === 0) return url
  return `${url}${url.includes('?') ? '&' : '?'}${query.join('&')}`
}

/** The parts with those of `socket`, as node-redis takes them. */
function withSocket(parts: Record<string, unknown>): Record<string, unknown> {
  if (parts['socket'] == null) return parts
  const socket = asObject(parts['socket'])
  if (socket === undefined)
    throw unusable(`the socket of a node must be an object, not ${describe(parts['socket'])}`)
  const second = ['host', 'port', 'path', 'tls'].find((part) => parts[part] != null)
  if (second !== undefined)
    throw new ConfigError(`a node address with a socket takes no '${second}' beside it`)
  for (const key of Object.keys(socket)) checkPart(key, [...OF_SOCKET, ...OF_TLS])
  const tls = socket['tls'] === true ? socket : socket['tls']
  return { ...parts, host: socket['host'], port: socket['port'], path: socket['path'], tls }
}

function readDatabase({ db, database }: Record<string, unknown>): unknown {
  if (db != null && database != null && db !== database)
    throw new ConfigError('a node address takes one of db and database, not two different ones')
  return db ?? database
}

/** The settings of `tls.connect` that say which certificates to trust and which to present. */
function readTls(options: Record<string, unknown> | undefined): TlsSpec {
  if (options === undefined)
    throw unusable('the tls of a node must be true or an object of settings')
  // What does not verify the certificate does not look at the name in it, either.
  const isCareless = options['rejectUnauthorized'] === false
  const blocked = ['pfx', 'passphrase', 'secureContext', 'checkServerIdentity'].find(
    (name) => options[name] != null && !(isCareless && name === 'checkServerIdentity'),
  )
  if (blocked !== undefined) throw unusable(`the tls setting '${blocked}' cannot be taken over`)
  const tls: TlsSpec = {}
  if (options['ca'] != null) tls.ca = [options['ca']].flat().map(pem)
  if (options['cert'] != null) tls.cert = [options['cert']].flat().map(pem).join('\n')
  if (options['key'] != null) tls.key = pem(options['key'])
  // An empty name stands for none.
  if (typeof options['servername'] === 'string' && options['servername'] !== '')
    tls.servername = options['servername']
  if (isCareless) tls.rejectUnauthorized = false
  return tls
}

function pem(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return Buffer.from(value).toString('utf8')
  throw unusable('the ca, cert and key of a node must be PEM, as a string or a Buffer')
}

/** An object with one of these is an address. */
const PLACES = ['url', 'host', 'port', 'path', 'socket']
/** Parts that a URL contains itself. */
const PARTS = ['host', 'port', 'path', 'username', 'password', 'db', 'database', 'tls']
const KNOWN = ['url', 'socket', 'keyPrefix', 'durable', ...PARTS]
const OF_SOCKET = ['host', 'port', 'path', 'tls']
const OF_TLS = ['ca', 'cert', 'key', 'servername', 'rejectUnauthorized']

/** Names that other libraries use for a part. */
const SYNONYMS: Record<string, string> = {
  auth: 'password',
  auth_pass: 'password',
  dbIndex: 'db',
  hostname: 'host',
  key_prefix: 'keyPrefix',
  pass: 'password',
  prefix: 'keyPrefix',
  select: 'db',
  ssl: 'tls',
  ssl_ca_certs: 'tls',
  ssl_ca_data: 'tls',
  ssl_ca_path: 'tls',
  ssl_cert_reqs: 'tls',
  ssl_certfile: 'tls',
  ssl_check_hostname: 'tls',
  ssl_keyfile: 'tls',
  ssl_password: 'tls',
  unix_socket_path: 'path',
  uri: 'url',
  user: 'username',
}

/** Parts that lead to another place than the others say, or code that cannot be followed. */
const BLOCKED: Record<string, string> = {
  Connector: 'is code that cannot be followed',
  connection_pool: 'has settings of its own',
  credential_provider: 'is code that cannot be taken over',
  credentialsProvider: 'is code that cannot be taken over',
  redis_connect_func: 'is code that cannot be followed',
  sentinels: 'may lead to another server after a failover',
  valkey_connect_func: 'is code that cannot be followed',
}

/** Options of client libraries that look like a part, but do not say where the node is. */
const HARMLESS = new Set(['name', 'role', 'family', 'keepAlive', 'noDelay', 'RESP'])
