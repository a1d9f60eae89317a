// Waits until a condition holds, instead of for a fixed time that may be too short.
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Resolves when `attempt()` tells a time below `limit`: several chances, for a machine that does other
 * things too.
 * @param {number} limit milliseconds
 * @param {() => Promise<number>} attempt tells how long it took
 */
export async function promptly(limit, attempt) {
  /** @type {number[]} */
  const took = []
  while (!(Number(took.at(-1)) < limit)) {
    if (took.length >= 5) throw new Error(`not within ${limit} ms: ${took.join(', ')}`)
    took.push(await attempt())
  }
}

/**
 * Resolves when `condition()` gives a true value; rejects after `within` milliseconds.
 * @template T
 * @param {() => T | Promise<T>} condition
 * @param {number} [within]
 * @returns {Promise<T>}
 */
export async function eventually(condition, within = 20_000) {
  const limit = performance.now() + within
  for (let pause = 1; ; pause = Math.min(pause * 2, 50)) {
    const value = await condition()
    if (value) return value
    if (performance.now() > limit) throw new Error(`not true within ${within} ms`)
    await sleep(pause)
  }
}
