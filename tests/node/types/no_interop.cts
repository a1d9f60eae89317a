// What users write in TypeScript without esModuleInterop. Compiled, never run.
import Redlock, { type Lock, Redlock as Named, ResourceLockedError } from 'quorlock'

/** The default import names a type, too. */
let redlock: Redlock = new Redlock(['redis://a'])
redlock = new Named(['redis://a'])

export async function first(given: Redlock = redlock): Promise<Lock | undefined> {
  try {
    return await given.acquire('a', 5000)
  } catch (error) {
    if (error instanceof ResourceLockedError) return undefined
    throw error
  }
}
