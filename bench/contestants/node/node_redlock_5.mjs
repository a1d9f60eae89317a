// node-redlock 5.0.0-beta.2 over ioredis: what most Node code locks with.
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { TTL, ports, serve, versionOf } from './worker.mjs'

const require = createRequire(import.meta.url)
const { default: Redlock, ExecutionError } = require('redlock')

const redlock = new Redlock(ports.map((port) => new Redis(port, '127.0.0.1')))
redlock.on('error', () => {}) // it emits every refusal here, and an unheard one ends the process

await serve(
  {
    async acquire(resource) {
      try {
        return await redlock.acquire([resource], TTL)
      } catch (error) {
        if (error instanceof ExecutionError) return undefined
        throw error
      }
    },
    hold(resource) {
      return new Promise((resolve, reject) => {
        const block = { release: undefined }
        const ended = redlock.using([resource], TTL, () => {
          resolve(block)
          return new Promise((end) => {
            block.release = () => {
              end()
              return ended
            }
          })
        })
        ended.catch(reject)
      })
    },
    release: (lock) => lock.release(),
  },
  versionOf('redlock'),
)
