// What users write with `await using`. Compiled for a Node that does not know it yet; one that does
// runs it as it stands. Nothing here asserts anything.
import type { Lock, Redlock } from 'quorlock'

/** Runs `body` in a block that holds a lock. */
export async function block(
  redlock: Redlock,
  duration: number,
  body: (lock: Lock) => Promise<void>,
): Promise<string> {
  await using lock = await redlock.acquire('block', duration)
  await body(lock)
  return 'done'
}

/** Two locks in one block, which lasts until both are over. */
export async function pair(redlock: Redlock, duration: number): Promise<string> {
  await using first = await redlock.acquire('first', duration)
  await using second = await redlock.acquire('second', duration)
  while (first.isValid || second.isValid || (await redlock.isLocked('first')))
    await new Promise((resolve) => setImmediate(resolve))
  return 'done'
}

/** A Redlock that is closed at the end of the block; whether it was open in it. */
export async function manager(make: () => Redlock): Promise<Redlock> {
  await using redlock = make()
  await (await redlock.acquire('manager', 5000)).release()
  return redlock
}
