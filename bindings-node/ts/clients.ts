// Where the nodes are, from what the user names them by. Owns what is known of other libraries'
// client objects; only reads their settings: the connections are the native half's own.

import { ConfigError, describe, wrongType } from './errors'
import type { NodeSpec, TlsSpec } from './native'
import type { Client } from './stats'

/** A node in parts, where a URL will not do. */
export interface NodeAddress {
  /** A URL, with which the other parts but `keyPrefix` cannot be combined. */
  readonly url?: string
  /** Default `localhost`. */
  readonly host?: string
  /** Default 6379. */
  readonly port?: number
  /** The path of a unix socket, in place of `host` and `port`. */
  readonly path?: string
  readonly username?: string
  readonly password?: string
  /** The database to select. Default 0. */
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
}

/** A node for the native half, and what the user named it by. */
export interface ReadNode {
  client: Client
  node: string | NodeSpec
}

/** Every node that the user named, as what the native half takes. */
export function readClients(clients: unknown): ReadNode[] {
  const isIterable = typeof clients === 'object' && clients !== null && Symbol.iterator in clients
  if (!isIterable) {
    throw wrongType(`Redlock takes an array of nodes (URLs or clients), not ${describe(clients)}`)
  }
  // As in node-redlock, the same client twice counts once; an address twice is a mistake to be told.
  const list = [...(clients as Iterable<unknown>)].filter(
    (node, index, all) => typeof node === 'string' || all.indexOf(node) === index,
  )
  if (list.length === 0) {
    throw new ConfigError(
      'Redlock must be instantiated with at least one redis client. A URL will do as well.',
    )
  }
  return list.map((client) => ({ client: client as Client, node: readNode(client) }))
}

/**
 * Closes a client object that the user passed, as node-redlock's `quit` does; one that is not open
 * is left alone.
 */
export async function quitClient(client: Client): Promise<void> {
  if (typeof client !== 'object' || client instanceof URL) return
  const object = client as Record<string, unknown>
  const call = async (name: string): Promise<unknown> => (object[name] as () => unknown)()
  if (object['status'] === 'wait') return void (await call('disconnect'))
  if (
    object['status'] === 'end' ||
    object['isOpen'] === false ||
    typeof object['quit'] !== 'function'
  )
    return
  await call('quit')
}

function readNode(client: unknown): string | NodeSpec {
  if (typeof client === 'string') return client
  if (client instanceof URL) return client.href
  if (typeof client !== 'object' || client === null)
    throw unusable(`a node must be a URL or a client, not ${describe(client)}`)
  const object = client as Record<string, unknown>
  if (object['isCluster'] === true) throw unusable('an ioredis Cluster is not one independent node')
  const isIoredis =
    typeof object['defineCommand'] === 'function' && typeof object['status'] === 'string'
  if (isIoredis) return readIoredis(object)
  if (typeof object['sendCommand'] === 'function' || typeof object['connect'] === 'function') {
    return readNodeRedis(client, object)
  }
  return readAddress(client, object)
}

/** ioredis 4, 5 and 6 keep their settings, completed, in `options`. */
function readIoredis(client: Record<string, unknown>): NodeSpec {
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
  return readParts(options, options['path'], options['db'])
}

/** node-redis 4, 5 and 6: `options` with a `socket`; absent parts mean the default. */
function readNodeRedis(client: object, object: Record<string, unknown>): NodeSpec {
  if (NOT_ONE_NODE.some((name) => name in client)) {
    throw unusable(
      `${describe(client)} is a pool, cluster or sentinel client, not one client of one node`,
    )
  }
  const isClient = 'isOpen' in client || 'isReady' in client
  const options = object['options'] === undefined ? {} : asObject(object['options'])
  if (!isClient || options === undefined)
    throw unusable(`${describe(client)} is no client of ioredis or node-redis`)
  const hasLogin = options['username'] != null || options['password'] != null
  if (options['credentialsProvider'] != null && !hasLogin) {
    throw unusable("this client's credentialsProvider is code that cannot be taken over")
  }
  const socket = asObject(options['socket']) ?? {}
  const { username, password, keyPrefix } = options
  const tls = socket['tls'] === true ? socket : socket['tls']
  const parts = { host: socket['host'], port: socket['port'], username, password, keyPrefix, tls }
  return readParts(parts, socket['path'], options['database'])
}

/** The user's own object of parts. */
function readAddress(client: object, parts: Record<string, unknown>): string | NodeSpec {
  const known = [
    'url',
    'host',
    'port',
    'path',
    'username',
    'password',
    'db',
    'keyPrefix',
    'durable',
    'tls',
  ]
  const keys = Object.keys(parts)
  const isAddress = keys.some(
    (key) => key === 'url' || key === 'host' || key === 'port' || key === 'path',
  )
  if (!isAddress)
    throw unusable(
      `${describe(client)} is no client of ioredis or node-redis, and has no host, path or url`,
    )
  const odd = keys.find((key) => !known.includes(key))
  if (odd !== undefined)
    throw new ConfigError(
      `the node address has the unknown part '${odd}'; known are ${known.join(', ')}`,
    )
  if (parts['url'] === undefined) {
    const { durable } = parts
    if (durable != null && typeof durable !== 'boolean')
      throw wrongType(`durable of a node must be true or false, not ${describe(durable)}`)
    return { ...readParts(parts, parts['path'], parts['db']), durable: durable === true }
  }
  if (keys.some((key) => key !== 'url'))
    throw new ConfigError('a node address with a url takes no other part')
  if (typeof parts['url'] !== 'string') throw wrongType('the url of a node must be a string')
  return parts['url']
}

function readParts(parts: Record<string, unknown>, path: unknown, db: unknown): NodeSpec {
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

/** The settings of `tls.connect` that say whom to trust and what to show. */
function readTls(options: Record<string, unknown> | undefined): TlsSpec {
  if (options === undefined)
    throw unusable('the tls of a node must be true or an object of settings')
  const blocked = ['pfx', 'passphrase', 'secureContext', 'checkServerIdentity'].find(
    (name) => options[name] != null,
  )
  if (blocked !== undefined) throw unusable(`the tls setting '${blocked}' cannot be taken over`)
  const tls: TlsSpec = {}
  if (options['ca'] != null) tls.ca = [options['ca']].flat().map(pem)
  if (options['cert'] != null) tls.cert = [options['cert']].flat().map(pem).join('\n')
  if (options['key'] != null) tls.key = pem(options['key'])
  if (typeof options['servername'] === 'string') tls.servername = options['servername']
  if (options['rejectUnauthorized'] === false) tls.rejectUnauthorized = false
  return tls
}

function pem(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return Buffer.from(value).toString('utf8')
  throw unusable('the ca, cert and key of a node must be PEM, as a string or a Buffer')
}

function asObject(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)
    : undefined
}

/** What cannot be used, and what to pass instead. */
function unusable(problem: string): ConfigError {
  return wrongType(
    `${problem}; pass a URL such as 'rediss://user:password@host:6379/0', an object of host, port and so on, or a plain client of ioredis or node-redis`,
  )
}

/** Members of node-redis' pools, clusters and sentinels that its clients have not. */
const NOT_ONE_NODE = [
  'totalClients',
  'masters',
  'shards',
  'slots',
  'getSentinelNode',
  'sentinelRootNodes',
]
