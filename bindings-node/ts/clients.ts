// Reads the list of nodes that the user named. Owns what is passed to the native half, what is shown of a
// node, and how client objects are closed.

import { readAddress, unusable } from './address'
import { type ClientObject, clientObject } from './client_objects'
import { ConfigError, describe, wrongType } from './errors'
import type { NodeSpec } from './native'
import type { Client } from './stats'

/** One node as the user named it. */
export interface NamedNode {
  /** The URL, object of parts or client object. */
  readonly given: unknown
  /** Its address, for the native half. */
  readonly node: string | NodeSpec
  /** The other library's client object, if it is one. */
  readonly object: ClientObject | undefined
}

/** Every node that the user named, with what the native half takes. */
export function readClients(clients: unknown): NamedNode[] {
  const isIterable = typeof clients === 'object' && clients !== null && Symbol.iterator in clients
  if (!isIterable) {
    throw wrongType(`Redlock takes an array of nodes (URLs or clients), not ${describe(clients)}`)
  }
  // As in node-redlock, the same client twice counts once; the same address twice is a mistake that is
  // reported.
  const list = [...(clients as Iterable<unknown>)].filter(
    (node, index, all) => typeof node === 'string' || all.indexOf(node) === index,
  )
  if (list.length === 0) {
    throw new ConfigError(
      'Redlock must be instantiated with at least one redis client. A URL will do as well.',
    )
  }
  return list.map(readNode)
}

/**
 * What users see of a node: the client object that they passed, or the URL. A URL with a password in it, and
 * an object of parts, are replaced by the plain `address`, so that printing never shows the password.
 */
export function shownClient({ given, object }: NamedNode, address: string): Client {
  if (object !== undefined) return given as Client
  if (typeof given === 'string') return HAS_LOGIN.test(given) ? address : given
  return given instanceof URL && !HAS_LOGIN.test(given.href) ? given : address
}

/**
 * Closes a client object that the user passed, as node-redlock's `quit` does; does nothing if it is not open.
 */
export async function quitClient({ given, object }: NamedNode): Promise<void> {
  if (object === undefined) return
  const client = given as Record<string, unknown>
  const call = async (name: string): Promise<unknown> => (client[name] as () => unknown)()
  if (client['status'] === 'wait') return void (await call('disconnect'))
  if (
    client['status'] === 'end' ||
    client['isOpen'] === false ||
    typeof client['quit'] !== 'function'
  )
    return
  await call('quit')
}

function readNode(given: unknown): NamedNode {
  if (typeof given === 'string') return { given, node: given, object: undefined }
  if (given instanceof URL) return { given, node: given.href, object: undefined }
  if (typeof given !== 'object' || given === null)
    throw unusable(`a node must be a URL or a client, not ${describe(given)}`)
  const object = clientObject(given)
  const node = object?.read() ?? readAddress(given, given as Record<string, unknown>)
  return { given, node, object }
}

/** Whether a URL contains a user name: a password may be there, too. */
const HAS_LOGIN = /@|[?&](?:user|username|pass|password)=/
