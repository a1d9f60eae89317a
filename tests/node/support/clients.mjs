// The client libraries whose objects users pass, in every version that is supported.
import { Redis } from 'ioredis'
import Ioredis4 from 'ioredis4'
import { Redis as Ioredis5 } from 'ioredis5'
import * as nodeRedis from 'redis'
import * as nodeRedis4 from 'redis4'
import * as nodeRedis5 from 'redis5'

/**
 * What the compiler need not know the type of.
 * @param {unknown} value
 */
export const any = (value) => /** @type {any} */ (value)

/**
 * By name, what makes a client.
 * @type {[string, (url: string, options?: any) => any][]}
 */
export const IOREDIS = [
  ['ioredis 4', (url, options = {}) => new (any(Ioredis4))(url, options)],
  ['ioredis 5', (url, options = {}) => new Ioredis5(url, options)],
  ['ioredis 6', (url, options = {}) => new Redis(url, options)],
]

/**
 * By name, the module.
 * @type {[string, any][]}
 */
export const NODE_REDIS = [
  ['node-redis 4', nodeRedis4],
  ['node-redis 5', nodeRedis5],
  ['node-redis 6', nodeRedis],
]

/**
 * By name, what makes a client of node-redis and connects it.
 * @type {[string, (url: string, options?: any) => Promise<any>][]}
 */
export const OPEN_NODE_REDIS = NODE_REDIS.map(([name, { createClient }]) => [
  name,
  async (url, options = {}) => {
    const client = createClient({ url, ...options })
    client.on('error', () => {})
    return client.connect().then(() => client)
  },
])
