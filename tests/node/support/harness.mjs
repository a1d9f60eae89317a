// Runs the process behind servers.mjs: sends numbered lines of JSON, receives answers. Knows nothing of what
// the commands do.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../../', import.meta.url))

/** Raised with the message of the harness; `name` is the Python exception's. */
export class HarnessError extends Error {}

/** Started at once; `ask` waits for it. */
export class Harness {
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
  #waiting = new Map()
  #number = 0
  #child
  /** @type {Error | undefined} why nothing is answered any more */
  #ended

  /**
   * @param {number} count
   * @param {object} options as `Options` in tests/support/options.py
   */
  constructor(count, options) {
    const words = [
      '-m',
      'tests.support',
      '--count',
      String(count),
      '--options',
      JSON.stringify(options),
    ]
    this.#child = spawn(python(), words, { cwd: root, stdio: ['pipe', 'pipe', 'inherit'] })
    hold(this.#child, false)
    this.#child.stdin.on('error', () => {})
    this.#child.once('exit', () => this.#fail(new HarnessError('the harness process ended')))
    this.#child.once('error', (error) => this.#fail(error))
    createInterface({ input: this.#child.stdout }).on('line', (line) =>
      this.#take(JSON.parse(line)),
    )
  }

  /** @returns {Promise<any>} the first line: what was started */
  started() {
    return this.#expect(0)
  }

  /**
   * @param {string} name
   * @param {object} [fields]
   * @returns {Promise<any>}
   */
  ask(name, fields = {}) {
    const id = ++this.#number
    const answer = this.#expect(id)
    this.#child.stdin.write(JSON.stringify({ id, do: name, ...fields }) + '\n')
    return answer
  }

  /** @returns {Promise<void>} when all servers are gone */
  end() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return Promise.resolve()
    return new Promise((resolve) => {
      this.#child.ref()
      this.#child.once('exit', () => resolve())
      this.#child.stdin.end()
    })
  }

  /**
   * @param {number} id
   * @returns {Promise<any>}
   */
  #expect(id) {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) return reject(this.#ended)
      this.#waiting.set(id, { resolve, reject })
      hold(this.#child, true)
    })
  }

  /** @param {{id?: number, result?: unknown, error?: string, type?: string}} message */
  #take(message) {
    const id = message.id ?? 0
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    hold(this.#child, this.#waiting.size > 0)
    if (message.error === undefined) {
      waiting?.resolve(id === 0 ? message : message.result)
    } else {
      waiting?.reject(Object.assign(new HarnessError(message.error), { name: message.type }))
    }
  }

  /** @param {Error} error */
  #fail(error) {
    this.#ended ??= error
    for (const { reject } of this.#waiting.values()) reject(error)
    this.#waiting.clear()
  }
}

/**
 * Whether this process waits for what a child says, or for the end that comes instead of it. A test
 * process must be able to end by itself, also after a test that failed: an idle child does not hold it open.
 * @param {import('node:child_process').ChildProcess} child
 * @param {boolean} held
 */
export function hold(child, held) {
  const handles = /** @type {{ref(): void, unref(): void}[]} */ (
    /** @type {unknown} */ ([child, child.stdin, child.stdout])
  )
  for (const handle of handles) {
    if (held) handle.ref()
    else handle.unref()
  }
}

/** The repository's own Python, which has the embedded server. */
export function python() {
  const own = `${root}.venv/bin/python`
  return existsSync(own) ? own : 'python3'
}
