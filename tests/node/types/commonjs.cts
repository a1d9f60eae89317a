// What users write in TypeScript that becomes CommonJS. Compiled, never run.
import Whole = require('quorlock')
import Redlock, { ExecutionError, Lock, Redlock as Named, type Settings } from 'quorlock'

const settings: Partial<Settings> = { retryCount: 3 }
export const redlocks: Redlock[] = [
  new Redlock(['redis://a'], settings),
  new Named(['redis://a']),
  new Whole(['redis://a']),
  new Whole.Redlock(['redis://a']),
  new Whole.default(['redis://a']),
]

export const sequencer: Whole.Sequencer = Whole.Sequencer.parse('a@1')
export const owner: Whole.Owner = { service: 'billing' }

export async function first(): Promise<Whole.Lock | undefined> {
  try {
    const lock: Lock | undefined = await redlocks[0]?.acquire('a', 5000)
    return lock instanceof Whole.Lock ? lock : undefined
  } catch (error) {
    if (error instanceof ExecutionError) await Promise.all(error.attempts)
    throw error
  }
}
