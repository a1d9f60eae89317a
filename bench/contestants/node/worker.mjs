// Runs a Node contestant's loops as the bench asks by lines of JSON; see bench/README.md.
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** Milliseconds: the same for everybody. */
export const TTL = 10_000

const words = process.argv.slice(2)
/** '' for the library's defaults. */
export const variant = words[0]?.startsWith('--') ? words.shift()?.slice(2) : ''
export const ports = words.map(Number)
export const urls = ports.map((port) => `redis://127.0.0.1:${port}`)

/**
 * A lock that is held inside a block: the block ends when it is released.
 * @param {(routine: () => Promise<void>) => Promise<unknown>} using
 */
export function enter(using) {
  return new Promise((resolve, reject) => {
    const block = { ended: undefined, end: undefined }
    block.ended = using(() => {
      resolve(block)
      return new Promise((end) => (block.end = end))
    })
    block.ended.catch(reject)
  })
}

/** @param {any} block */
export function leave(block) {
  block.end()
  return block.ended
}

/**
 * @typedef {object} Locks a library under test: waits as it does by default
 * @property {(resource: string) => Promise<any>} acquire a held lock; undefined if it gave up
 * @property {(held: any) => Promise<unknown>} release
 * @property {(resource: string) => Promise<any>} [hold] a lock that is renewed by itself
 */

/**
 * Of an installed package, also one that does not export its package.json.
 * @param {string} name
 */
export function versionOf(name) {
  const places = ['../../', '../../../'].map((above) =>
    fileURLToPath(new URL(`${above}node_modules/${name}/package.json`, import.meta.url)),
  )
  return JSON.parse(readFileSync(places.find(existsSync) ?? places[0], 'utf8')).version.replace(
    /^v/,
    '',
  )
}

/**
 * Answers requests until the input ends.
 * @param {Locks} locks
 * @param {string} version
 */
export async function serve(locks, version) {
  const actions = { pairs, contend, hold, drop, idle }
  const held = []
  say({ version })
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line)
    try {
      say(await actions[name](locks, request, held))
    } catch (error) {
      say({ error: String(error) })
    }
  }
  process.exit(0)
}

async function pairs(locks, { seconds, in_flight = 1, resources = 1, most = 100_000 }) {
  const start = performance.now()
  const cpu = process.cpuUsage()
  const end = start + seconds * 1000
  const samples = []
  async function loop(number) {
    let now = performance.now()
    for (let done = 0; now < end && done < most / in_flight; done++) {
      const lock = await locks.acquire(`bench:${number}:${done % resources}`)
      if (lock === undefined) throw new Error('refused, and nobody else was there')
      await locks.release(lock)
      const after = performance.now()
      samples.push((after - now) * 1000)
      now = after
    }
  }
  await Promise.all(Array.from({ length: in_flight }, (_, number) => loop(number)))
  const took = (performance.now() - start) / 1000
  const { user, system } = process.cpuUsage(cpu)
  const micros = samples.map((one) => Math.round(one * 10) / 10)
  return { pairs: samples.length, seconds: took, cpu: (user + system) / 1e6, micros }
}

async function contend(locks, { seconds, contenders, hold: pause, rest }) {
  const end = performance.now() + seconds * 1000
  async function loop() {
    const times = []
    let wanted = monotonicMicros()
    while (performance.now() < end) {
      const lock = await locks.acquire('bench:contended')
      if (lock === undefined) continue
      const acquired = monotonicMicros()
      await sleep(pause * 1000)
      times.push([wanted, acquired, monotonicMicros()])
      await locks.release(lock)
      await sleep(rest * 1000)
      wanted = monotonicMicros()
    }
    return times
  }
  return { held: await Promise.all(Array.from({ length: contenders }, loop)) }
}

async function hold(locks, { count }, held) {
  for (let first = 0; first < count; first += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - first) }, (_, n) => first + n)
    held.push(...(await Promise.all(some.map((n) => locks.hold(`bench:held:${n}`)))))
  }
  return { held: held.length }
}

async function drop(locks, _, held) {
  while (held.length > 0) {
    await Promise.all(held.splice(-AT_ONCE).map((lock) => locks.release(lock)))
  }
  return {}
}

async function idle(_, { seconds }) {
  await sleep(seconds * 1000)
  return {}
}

/** @param {number} millis */
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis))
/** Of the clock that all processes share. */
const monotonicMicros = () => Number(process.hrtime.bigint() / 1000n)
const say = (message) => process.stdout.write(JSON.stringify(message) + '\n')
const AT_ONCE = 64
