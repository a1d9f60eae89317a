// Runs a program of a few lines in a process of its own.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { promptly } from './wait.mjs'

/** Ends with what it printed, its code and how long it lived after `done` was printed. */
export async function run(
  /** @type {string} */ code,
  /** @type {string[]} */ urls,
  /** @type {string[]} */ flags = [],
) {
  const head = `import { Redlock } from 'quorlock'; const urls = ${JSON.stringify(urls)};`
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', head + code], {
    cwd: import.meta.dirname,
  })
  let [output, errors, doneAt] = ['', '', NaN]
  child.stdout.on('data', (data) => {
    output += String(data)
    if (output.includes('done')) doneAt = performance.now()
  })
  child.stderr.on('data', (data) => (errors += String(data)))
  const limit = setTimeout(() => child.kill('SIGKILL'), 20_000)
  const [status] = await once(child, 'close')
  clearTimeout(limit)
  return { output, errors, status, lingered: performance.now() - doneAt }
}

/**
 * Runs a program that prints `done` and then exits with status 3, which takes it less than `limit` milliseconds.
 * @param {number} limit
 * @param {string} code
 * @param {string[]} urls
 */
export const exitsWithin = (limit, code, urls) =>
  promptly(limit, async () => {
    const { status, lingered } = await run(code, urls)
    assert.equal(status, 3)
    return lingered
  })
