// What users write in TypeScript, as an ES module. Compiled, never run.
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import Redlock, {
  type AcquireOptions,
  ConfigError,
  ExecutionError,
  type ExecutionStats,
  type Holder,
  LeaseLostError,
  Lock,
  LockError,
  Redlock as Named,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
} from 'quorlock'

const settings: Partial<Settings> = {
  driftFactor: 0.01,
  retryCount: 3,
  automaticExtensionThreshold: 500,
}
const nodes = [
  'redis://a',
  new URL('redis://b'),
  { host: 'c', port: 1, tls: true },
  new Redis(),
  createClient(),
]
export const redlock: Named = new Redlock(nodes, settings)

export async function direct(signal: AbortSignal): Promise<number | undefined> {
  const options: AcquireOptions = { signal, timeout: 3000 }
  let lock: Lock = await redlock.acquire(['a', 'b'], 5000, options)
  lock = await lock.extend(5000)
  lock = await redlock.extend(lock, 5000)
  const { fencingToken, value, expiration, validity, resources, votes } = lock
  const text: string = value + resources[0] + votes[0]?.outcome
  const left: number = expiration + validity
  const [stats] = (await redlock.release(lock)).attempts
  stats?.then((each: ExecutionStats) => each.votesAgainst.forEach((error: Error) => error))
  return text.length + left > 0 ? fencingToken : undefined
}

export async function wrapped(): Promise<string> {
  const count: number = await redlock.using(['a'], 5000, async (signal: RedlockAbortSignal) => {
    if (signal.aborted) throw signal.error
    return 1
  })
  const text = await redlock.using(
    'a',
    5000,
    { retryCount: 5 },
    async (_signal, { lock }) => lock.value,
  )
  return text.repeat(count)
}

export async function disposed(): Promise<void> {
  await using held = await redlock.acquire(['a'], 5000)
  held.signal.addEventListener('abort', () => {})
}

export function told(error: unknown): string {
  if (error instanceof ResourceLockedError) return String(error.attempts.length)
  if (error instanceof LeaseLostError || error instanceof ExecutionError) return error.code
  if (error instanceof ConfigError || error instanceof LockError) return error.message
  return ''
}

export async function holder(): Promise<string | undefined> {
  const named = new Redlock(nodes, { owner: { service: 'billing', shard: 7 } })
  const told: Holder | undefined = await named.holder('a')
  return told === undefined ? undefined : `${told} ${told.owner['pid']} ${told.since ?? 0}`
}

redlock.on('error', (error: Error) => told(error))

// @ts-expect-error a duration is a number
void redlock.acquire('a', '5000')
// @ts-expect-error the number of retries is a number
void new Redlock(nodes, { retryCount: '3' })
// @ts-expect-error the owner is the same for all locks of a Redlock
void redlock.acquire('a', 5000, { owner: { service: 'billing' } })
// @ts-expect-error a routine is wanted
void redlock.using('a', 5000)
