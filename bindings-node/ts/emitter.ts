// What a Redlock emits where nobody listens. Owns that `error` does not throw then, and that `warning` becomes a
// warning of the process.

import { EventEmitter } from 'node:events'

import { tellNoProcess, type Told, type Warning, warnProcess } from './process_warnings'

/** An emitter for which it is no mistake to have no listeners. */
export class Emitter extends EventEmitter {
  /** Like every emitter's, but an `error` without a listener does not throw. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'error' && this.listenerCount('error') === 0) return false
    return super.emit(event, ...values)
  }

  /** @internal */
  _warn(notice: Told): void {
    const { name, message, address } = notice
    const warning: Warning = { name, message, ...(address === undefined ? {} : { address }) }
    if (this.emit('warning', warning)) tellNoProcess(notice)
    else warnProcess(notice)
  }
}
