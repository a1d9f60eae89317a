// The line protocol of a peer's worker: see tests/support/peers.py. One request at a time, one
// attempt each, so that a test decides what happens between two.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

/**
 * @typedef {object} Peer
 * @property {(resource: string, ttl: number) => Promise<string | null>} acquire null: held by another
 * @property {(resource: string, ttl: number) => Promise<boolean>} extend
 * @property {(resource: string) => Promise<boolean>} release
 */

/**
 * @param {string} name folder of the package whose version is told
 * @param {(nodes: {host: string, port: number}[]) => Promise<Peer> | Peer} build
 */
export async function serve(name, build) {
  const nodes = process.argv.slice(2).map((address) => {
    const [host = '', port] = address.split(':')
    return { host, port: Number(port) }
  })
  const peer = await build(nodes)
  const description = new URL(`../../../node_modules/${name}/package.json`, import.meta.url)
  say({ peer: name, version: JSON.parse(readFileSync(description, 'utf8')).version })
  for await (const line of createInterface({ input: process.stdin })) {
    const request = /** @type {{do: keyof Peer, resource: string, ttl: number}} */ (
      JSON.parse(line)
    )
    try {
      say({ result: await peer[request.do](request.resource, request.ttl) })
    } catch (error) {
      say({ error: String(error) })
    }
  }
  // Connections and timers of the libraries would keep the process alive.
  process.exit(0)
}

/** @param {object} message */
function say(message) {
  process.stdout.write(JSON.stringify(message) + '\n')
}
