// What a Redlock emits where nobody listens. Owns that `error` does not throw then, and that `warning` becomes a
// warning of the process.

import { EventEmitter } from 'node:events'

import type { Notice } from './native'
import { type Warning, warnProcess } from './process_warnings'

/** An emitter for which it is no mistake to have no listeners. */
export class Emitter extends EventEmitter {
  /** Like every emitter's, but an `error` without a listener does not throw. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'error' && this.listenerCount('error') === 0) return false
    return super.emit(event, ...values)
  }

  /** @internal */
  _warn({ name, message, address }: Notice): void {
    const warning: Warning = { name, message, ...(address === undefined ? {} : { address }) }
    if (!this.emit('warning', warning)) warnProcess(warning)
  }
}
