// The manager that users create. Owns the public methods; nodes, rounds and renewals belong to the native
// half.

import { inspect } from 'node:util'

import type { NodeAddress } from './address'
import { run } from './bridge'
import { type Call, ClientStates, timed } from './client_states'
import { type NamedNode, quitClient, readClients, shownClient } from './clients'
import { defineAsyncDispose } from './dispose'
import { Emitter } from './emitter'
import { EventSource } from './events'
import { errorOf, type Operation } from './failures'
import { checkLock, deliver, giveBack, Lock, type Won } from './lock'
import {
  type Failure,
  native,
  type NativeLease,
  type NativeRedlock,
  type NodeSpec,
  type NodeVote,
} from './native'
import { type Holder, holderOf, unlessUnreachable } from './holder'
import { open } from './opening'
import {
  type AcquireOptions,
  checkScripts,
  readDuration,
  readOptions,
  readResource,
  readResources,
  readSettings,
  readValue,
  type Settings,
} from './options'
import type { ReleaseResult } from './release'
import type { RedlockStats } from './figures'
import { LONGEST_PATIENCE, Reports } from './reports'
import { readSequencer, type Sequencer } from './sequencer'
import { reasonOf } from './signals'
import { withStackBelow } from './stacks'
import { type NodeStatus, Status } from './node_status'
import { type Client, type LockVote, readVotes } from './stats'
import { isTraced, traceAcquire } from './tracing'
import { readRoutine, type Routine, useLock } from './using'

/**
 * Locks over N independent Redis or Valkey servers. It has the methods, settings and events of node-redlock 5; custom
 * scripts and clients of a cluster are refused.
 *
 * Nodes are named by URL (`redis://`, `rediss://`, `unix://`, `memory://` for a node inside this process), by an
 * object of `host`, `port` and so on, or by a client of ioredis or node-redis whose settings are read: the
 * connections are this library's own, made at the first operation. Every Redlock of the process uses the same one to
 * a server, if address, user, password, database and TLS are the same. They do not keep the process alive.
 *
 * Of a client object, the user and password are those of its options: what it was given by `auth()` is not read,
 * because no client shows it. The database that it has selected and the key prefix count, too; they must be the same
 * for all, and stay: otherwise, operations reject with a {@link ConfigError}. A connected client is asked for its
 * database, again when a second has passed or it has connected anew: what it selects in between counts when it is
 * asked next. Where too few tell it, operations reject with a {@link QuorumUnreachableError}.
 * Nodes must be independent: the first operation rejects with a {@link ConfigError} if two addresses lead to one
 * server, a node is the replica of another, or two belong to one Redis Cluster.
 *
 * It emits what happens to locks and nodes as events ({@link RedlockEvents}): `acquired`, `released`, `lost` and so
 * on. Without a listener, none is made. It emits `error` for every node's vote against a try, also where the quorum
 * was met and where a lock extends itself. Without a listener nothing happens. It emits `warning` with a {@link
 * Warning}; without a listener, it becomes a warning of the process (`QuorlockWarning`), which Node prints: once, if
 * many managers see the same node leave, come back or be held back.
 *
 * @example
 * ```js
 * import { Redlock } from 'quorlock'
 *
 * const redlock = new Redlock(['redis://a:6379', 'redis://b:6379', 'redis://c:6379'])
 * await redlock.using('invoice:42', 5000, async (signal) => {
 *   // Work. If the lock is lost, signal aborts.
 * })
 * await redlock.quit()
 * ```
 */
export class Redlock extends Emitter {
  /** The settings that every operation starts from. */
  readonly settings: Settings
  readonly #all: Set<Client>
  /** @internal */
  readonly _reports: Reports
  /** @internal */
  readonly _eventSource: EventSource
  /** @internal */
  readonly _states: ClientStates
  readonly #nodes: readonly NamedNode[]
  readonly #clients: readonly Client[]
  #native: NativeRedlock
  #isInUse = false;

  /** Calls {@link close} at the end of an `await using` block. */
  declare [Symbol.asyncDispose]: () => Promise<void>

  /**
   * Throws a {@link ConfigError} if there is no node, one cannot be used or is named twice, or a setting is wrong.
   * `scripts` is there to say so: what runs on the nodes cannot be replaced.
   */
  constructor(
    clients: Iterable<Client | NodeAddress>,
    settings: Partial<Settings> = {},
    scripts: object = {},
  ) {
    super()
    this.#nodes = readClients(clients)
    const read = readSettings(settings)
    checkScripts(scripts)
    this.settings = read.all
    this.#clients = []
    const specs = this.#nodes.map(({ node }) => node)
    this.#native = open(this, this.#nodes, specs, read)
    this._reports = new Reports(this, this._patience)
    this._eventSource = new EventSource(this, () => this.#native)
    const addresses = (): string[] => native.nodes(this.#native).map(({ address }) => address)
    this.#clients = addresses().map((at, i) => shownClient(this.#nodes[i] as NamedNode, at))
    this.#all = new Set(this.#clients)
    this._states = new ClientStates(this.#nodes, (index) => String(addresses()[index]), {
      databases: (found) => {
        // The nodes have not been asked for anything yet, unless a lock was taken over.
        if (this.#isInUse) return false
        for (const [index, db] of found) specs[index] = { ...(specs[index] as NodeSpec), db }
        this.#native = open(this, this.#nodes, specs, read)
        this._eventSource.renew()
        return true
      },
      leaveOut: (index, isLeftOut) => native.leaveOut(this.#native, index, isLeftOut),
      isClosed: () => this.isClosed,
      failure: (failure, operation) => this._failure(failure, operation),
      warn: (name, message, index) =>
        this._warn({ name, message, address: String(addresses()[index]) }),
    })
    defineAsyncDispose(Redlock.prototype, dispose)
  }

  /**
   * Locks `resources`, all or none, for `duration` milliseconds.
   *
   * Rejects with {@link ResourceLockedError} if another holds one for as long as `retryCount` and `timeout` allow to
   * wait, with {@link QuorumUnreachableError} if too few nodes answer (both are {@link ExecutionError}s), with {@link
   * ConfigError} for a wrong argument, and with the signal's reason at once when `signal` aborts. The nodes are then
   * asked to delete its keys: one that answers has none a moment later (about a round trip); on one that fails, they
   * end with their duration.
   *
   * @example
   * ```js
   * const lock = await redlock.acquire(['a', 'b'], 5000, { timeout: 3000 })
   * ```
   */
  async acquire(
    resources: string | readonly string[],
    duration: number,
    options?: AcquireOptions,
  ): Promise<Lock> {
    if (isTraced()) {
      const again = (): Promise<Lock> =>
        Redlock.prototype.acquire.call(this, resources, duration, options)
      return await traceAcquire({ redlock: this, resources, duration }, again)
    }
    const names = readResources(resources)
    const millis = readDuration(duration)
    const { given, signal } = readOptions(options)
    if (signal?.aborted) throw reasonOf(signal)
    const patience = (): number | null => native.callPatience(this.#native, millis, given)
    const proceeds = (given?.['onUnreachable'] ?? this.settings.onUnreachable) === 'proceed'
    const call: Call = { resources: names, operation: 'acquire', patience, proceeds, signal }
    const asking = this._states.check(call)
    const waited = asking === undefined ? 0 : await timed(asking, signal)
    const start = (id: number): void =>
      native.acquire(this.#native, id, names, millis, given, waited)
    const settled = await run(start, signal && { signal, late: giveBack })
    this._eventSource.keep()
    // The signal may have aborted after the result was told and before this code ran.
    if (settled === undefined || signal?.aborted) {
      if (settled !== undefined) giveBack(settled)
      throw reasonOf(signal as AbortSignal)
    }
    if (settled.error !== undefined) {
      const { rounds } = settled.error
      const error = this._failure(settled.error, 'acquire')
      this._reports.rounds(() => rounds.map((votes) => this._votes(votes, names)))
      throw error
    }
    const lease = settled.value as NativeLease
    const confirming = this._states.confirm(lease, call, signal)
    if (confirming !== undefined) await confirming
    const lock = new Lock(this, {
      lease,
      resources: names,
      value: settled.beside as string,
      isExtended: options?.autoExtend ?? this.settings.autoExtend ?? false,
    })
    lock._report()
    void deliver(lease)
    return lock
  }

  /**
   * Runs `routine` under a lock that extends itself, and releases it in the end; resolves with what the routine
   * returns.
   *
   * The signal that the routine gets aborts if the lock is lost (with a {@link LeaseLostError}, also at
   * `signal.error`) or if the caller's own `signal` does. The extension runs apart from this thread: a blocked event
   * loop does not lose the lock. If the lock was lost, `using` rejects with the {@link LeaseLostError} even if the
   * routine has not noticed; what the routine itself throws is never replaced.
   *
   * @example
   * ```js
   * await redlock.using(['a', 'b'], 5000, async (signal, { lock }) => {
   *   await step()
   *   if (signal.aborted) throw signal.error
   *   await write(lock.fencingToken)
   * })
   * ```
   */
  async using<T>(
    resources: string | readonly string[],
    duration: number,
    routine: Routine<T>,
  ): Promise<T>
  async using<T>(
    resources: string | readonly string[],
    duration: number,
    options: AcquireOptions,
    routine?: Routine<T>,
  ): Promise<T>
  async using<T>(
    resources: string | readonly string[],
    duration: number,
    optionsOrRoutine: AcquireOptions | Routine<T>,
    optionalRoutine?: Routine<T>,
  ): Promise<T> {
    const acquire = (options: AcquireOptions): Promise<Lock> =>
      this.acquire(resources, duration, options)
    return await useLock(acquire, readRoutine(optionsOrRoutine, optionalRoutine))
  }

  /**
   * Keeps `lock` for `duration` milliseconds from now on: see {@link Lock.extend}. `settings` change nothing here.
   */
  async extend(lock: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock> {
    readOptions(settings)
    return await checkLock(lock).extend(duration)
  }

  /** Gives `lock` back: see {@link Lock.release}. `settings` change nothing here. */
  async release(lock: Lock, settings?: Partial<Settings>): Promise<ReleaseResult> {
    readOptions(settings)
    return await checkLock(lock).release()
  }

  /**
   * Takes over a lock by the {@link Lock.value} that its holder handed over. Its validity is 0 until {@link Lock.extend} or {@link
   * Lock.check} has confirmed it. That holder must have stopped working: it goes by its own validity, also after a release here.
   */
  lease(resources: string | readonly string[], value: string): Lock {
    return new Lock(this, readResources(resources), value)
  }

  /**
   * Whether anyone holds one of `resources` now. Rejects with {@link QuorumUnreachableError} if too few nodes answer.
   */
  async isLocked(resources: string | readonly string[]): Promise<boolean> {
    return (await this.#ask(native.isLocked, readResources(resources))) as boolean
  }

  /**
   * How many acquisitions wait for `resources` in the nodes' queues: a hint. It is the middle one of the nodes'
   * counts, and may be out of date when the promise resolves. The callers of one process that wait for the same lock
   * by equal nodes and settings count once; those with `wait: 'poll'` do not count. Rejects with {@link
   * QuorumUnreachableError} if too few nodes answer.
   */
  async waiters(resources: string | readonly string[]): Promise<number> {
    return (await this.#ask(native.waiters, readResources(resources))) as number
  }

  /**
   * Who holds `resource`: what its holder says of itself, if its Redlock has an `owner`. Resolves with undefined if
   * nobody holds it, or too few nodes tell within one node's time to answer.
   *
   * @example
   * ```js
   * console.log(`held by ${await redlock.holder('invoice:42')}`) // held by billing on web-3, pid 812, for 4 s
   * ```
   */
  async holder(resource: string): Promise<Holder | undefined> {
    const name = readResource(resource)
    const call = { resources: [name], patience: () => this._patience }
    return holderOf(await unlessUnreachable(this.#ask(native.holder, name, call)))
  }

  /**
   * Whether the lock behind a {@link Sequencer} (or its text) is held now; its holder must have called {@link
   * Lock.recordSequencer}. Rejects with {@link QuorumUnreachableError} if too few nodes answer; nodes of `memory://`
   * cannot tell.
   */
  async verify(sequencer: Sequencer | string): Promise<boolean> {
    return (await this.#ask(native.verify, readSequencer(sequencer))) as boolean
  }

  /** Every node with its state, in the order given. */
  get nodes(): NodeStatus[] {
    return native
      .nodes(this.#native)
      .map((status, index) => new Status(this.#clients[index] as Client, status))
  }

  /**
   * What this Redlock has counted since it was made. Asks no node. Histograms of times are in seconds.
   *
   * @example
   * ```js
   * const { held, acquisitions } = redlock.stats()
   * ```
   */
  stats(): RedlockStats {
    return JSON.parse(native.stats(this.#native)) as RedlockStats
  }

  /**
   * Gives up the connections of this Redlock: those that no other one of the process uses are closed (five seconds
   * later if it is only forgotten and collected). Client objects that were passed stay open. Locks that are still
   * held are extended no more. Their release connects once more; other later operations reject. Doing it twice does
   * nothing more. Resolves when listeners were called with the events of all that has happened, after one second at
   * most.
   */
  async close(): Promise<void> {
    native.close(this.#native)
    this._states.close()
    await this._eventSource.settle()
  }

  /**
   * Like {@link close}, and closes the client objects that were passed as well, as in node-redlock. Resolves when
   * they are closed; their errors are ignored.
   */
  async quit(): Promise<void> {
    await this.close()
    await Promise.allSettled(this.#nodes.map((node) => quitClient(node)))
  }

  /** Whether it was closed, by {@link close} or {@link quit}. */
  get isClosed(): boolean {
    return native.isClosed(this.#native)
  }

  /** The client objects and addresses that were passed, the latter without their passwords. */
  get clients(): Set<Client> {
    return this.#all
  }

  [inspect.custom](): string {
    const nodes = this.nodes.map(({ address, state }) => `${address} ${state}`)
    return `<Redlock ${nodes.join(', ')}>`
  }

  /** @internal */
  _adopt(resources: unknown, value: unknown): Won {
    const [token, names] = [readValue(value), readResources(resources)]
    this.#isInUse = true
    const lease = native.adopt(this.#native, names, token)
    if ('message' in lease) throw this._failure(lease, 'other')
    return { lease, resources: names, value: token, isExtended: false }
  }

  /** @internal */
  _votes(votes: readonly NodeVote[], resources: readonly string[]): LockVote[] {
    return readVotes(votes, this.#clients, resources)
  }

  /** @internal */
  _failure(failure: Failure, operation: Operation): Error {
    return withStackBelow(this._failure, () => errorOf(failure, this.#clients, operation))
  }

  async #ask<T>(
    ask: (redlock: NativeRedlock, id: number, of: T) => void,
    of: T,
    call: Partial<Call> = {},
  ): Promise<unknown> {
    const resources = Array.isArray(of) ? (of as string[]) : []
    const asking = this._states.check({ resources, operation: 'other', ...call })
    if (asking !== undefined) await asking
    const settled = await run((id) => ask(this.#native, id, of))
    if (settled.error !== undefined) throw this._failure(settled.error, 'other')
    return settled.value
  }

  /** @internal How long a node may take, at most, before it counts as silent; in milliseconds. */
  get _patience(): number {
    return Math.min(native.patience(this.#native), LONGEST_PATIENCE)
  }
}

function dispose(this: Redlock): Promise<void> {
  return this.close()
}
