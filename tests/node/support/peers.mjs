// Runs another lock library in a process of its own, with the same workers as tests/support/peer_process.py.
// Names: redlock-py, redis-py, redis-py-asyncio, valkey-py, aioredlock, pottery, node-redlock,
// node-redlock-4, redlock-universal.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { hold, python, root } from './harness.mjs'

const nodePeers = new Set(['node-redlock', 'node-redlock-4', 'redlock-universal'])

/** One worker: one request at a time. */
export class Peer {
  #child
  #lines
  version = ''

  /**
   * @param {string} name
   * @param {string[]} addresses
   */
  constructor(name, addresses) {
    this.name = name
    const [program, ...words] = nodePeers.has(name)
      ? [process.execPath, `${root}tests/node/peers/${name}.mjs`]
      : [python(), '-m', 'tests.support.peers', name]
    this.#child = spawn(/** @type {string} */ (program), [...words, ...addresses], {
      cwd: root,
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]()
  }

  get pid() {
    return this.#child.pid
  }

  async ready() {
    this.version = (await this.#read()).version
    return this
  }

  /**
   * One attempt; the token, or null when held by another.
   * @param {string} resource
   * @param {number} ttl milliseconds
   * @returns {Promise<string | null>}
   */
  acquire(resource, ttl = 10_000) {
    return this.#ask({ do: 'acquire', resource, ttl })
  }

  /**
   * @param {string} resource
   * @param {number} ttl milliseconds
   * @returns {Promise<boolean>}
   */
  extend(resource, ttl = 10_000) {
    return this.#ask({ do: 'extend', resource, ttl })
  }

  /**
   * @param {string} resource
   * @returns {Promise<boolean>}
   */
  release(resource) {
    return this.#ask({ do: 'release', resource })
  }

  /** Ends it as a crash does: nothing is released. */
  close() {
    this.#child.kill('SIGKILL')
  }

  /** @param {object} request */
  async #ask(request) {
    this.#child.stdin.write(JSON.stringify(request) + '\n')
    const answer = await this.#read()
    if (answer.error !== undefined) throw new Error(`${this.name}: ${answer.error}`)
    return answer.result
  }

  /** @returns {Promise<any>} */
  async #read() {
    hold(this.#child, true)
    const { value, done } = await this.#lines.next()
    hold(this.#child, false)
    if (done) throw new Error(`${this.name}: the worker ended`)
    return JSON.parse(value)
  }
}

/**
 * @param {string} name
 * @param {string[]} addresses `host:port` of the nodes
 */
export function startPeer(name, addresses) {
  return new Peer(name, addresses).ready()
}
