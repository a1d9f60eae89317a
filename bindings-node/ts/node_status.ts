// The state of one node, as users read it. Owns how it is printed; decides nothing.

import type { NodeStatus as NativeStatus } from './native'
import { type Client, OfClient } from './stats'

/** The state of one node. */
export interface NodeStatus {
  /** Where it is, without a password. */
  readonly address: string
  /** What the user named as this node; not printed with the rest. */
  readonly client: Client
  /**
   * `quarantined`: it may have forgotten locks, so that its votes do not count yet. `refusing`: it
   * gets no locks, see `detail`.
   */
  readonly state: 'connecting' | 'healthy' | 'unresponsive' | 'quarantined' | 'refusing' | 'down'
  /** While it is quarantined, refusing or down: why. Of a healthy one: why it cannot call callers that wait. */
  readonly detail?: string
  /** While it is quarantined: for how much longer, in milliseconds. */
  readonly quarantinedFor?: number
}

/** A status that is printed without the client object. */
export class Status extends OfClient implements NodeStatus {
  declare readonly address: string
  declare readonly state: NodeStatus['state']

  constructor(client: Client, { address, state, detail, quarantinedFor }: NativeStatus) {
    super(client)
    Object.assign(this, {
      ...{ address, state },
      ...(detail === undefined ? {} : { detail }),
      ...(quarantinedFor === undefined ? {} : { quarantinedFor }),
    })
  }
}
