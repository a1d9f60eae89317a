// Runs a program in a Node process of its own, which a test can end in any way.
import { spawn } from 'node:child_process'
import { once } from 'node:events'

/**
 * Runs ES module code to its end; killed after `within` milliseconds.
 *
 * @param {string} code `urls` are the nodes, and `Redlock` is imported
 * @param {string[]} urls
 * @param {{ within?: number; flags?: string[] }} [options]
 */
export async function run(code, urls, { within = 30_000, flags = [] } = {}) {
  const head = `import { Redlock } from 'quorlock'; const urls = ${JSON.stringify(urls)};`
  const words = [...flags, '--input-type=module', '-e', head + code]
  const child = spawn(process.execPath, words, { cwd: import.meta.dirname })
  let output = ''
  let errors = ''
  child.stdout.on('data', (data) => (output += String(data)))
  child.stderr.on('data', (data) => (errors += String(data)))
  let hung = false
  const limit = setTimeout(() => {
    hung = true
    child.kill('SIGKILL')
  }, within)
  const [status, signal] = await once(child, 'close')
  clearTimeout(limit)
  return { output, errors, status, signal, hung }
}
