// What a `warning` event tells. Owns the form; the words come from the native half.

/**
 * Something that a person should know, although nothing has failed because of it yet: the
 * argument of `warning` events.
 */
export interface Warning {
  /**
   * `node-down`: a node has taken no part for two seconds. `node-up`: it takes part again.
   * `quarantined`: a node may have forgotten locks. `long-wait`: it is held back for more than a
   * minute. `long-lock`: a lock lasts for more than an hour, and `maxTtl` is not set.
   * `clock-set-back`: a node's clock is not right. `paused`: this machine stood still.
   * `may-evict`: a server may throw locks out.
   * `not-independent`: two addresses lead to one server, or one follows the other.
   * `credentials-changed`: a client object has others than those that were read from it.
   * `unknown-database`: a client object does not tell which database it has selected.
   */
  readonly name: string
  /** What was seen, what it means and what to do. */
  readonly message: string
  /** The address of the node that it is about, without a password, if it is about one. */
  readonly address?: string
}
