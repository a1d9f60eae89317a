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

/** A Redlock that is closed at the end of the block; whether it was open in it. */
export async function manager(make: () => Redlock): Promise<Redlock> {
  await using redlock = make()
  await (await redlock.acquire('manager', 5000)).release()
  return redlock
}
