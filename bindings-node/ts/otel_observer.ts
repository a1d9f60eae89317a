// What OpenTelemetry's meters get from managers when they are read. Owns which managers are asked.

import type { Attributes, Meter } from '@opentelemetry/api'

import type { RedlockStats } from './figures'
import type { Redlock } from './redlock'

/** The managers that each meter asks when it is read: it shows one value for a set of attributes. */
const observed = new WeakMap<Meter, Observed>()

interface Observed {
  /** How often each is instrumented. */
  readonly managers: Map<Redlock, number>
  readonly timeouts: Timeouts
}

/** Shows this manager in each reading, until the returned function is called. */
export function observe(redlock: Redlock, meter: Meter): () => void {
  const { managers, timeouts } = observed.get(meter) ?? beginToObserve(meter)
  managers.set(redlock, (managers.get(redlock) ?? 0) + 1)
  return () => {
    const others = (managers.get(redlock) ?? 1) - 1
    if (others > 0) return void managers.set(redlock, others)
    timeouts.count(redlock, redlock.stats())
    managers.delete(redlock)
  }
}

/** The timeouts of all managers by server, those that are gone included: a counter must not go down. */
class Timeouts {
  readonly all = new Map<string, number>()
  readonly #seen = new WeakMap<Redlock, Map<string, number>>()

  count(redlock: Redlock, { nodes }: RedlockStats): void {
    const now = new Map<string, number>()
    for (const node of nodes) {
      const server = serverOf(node.address)
      now.set(server, (now.get(server) ?? 0) + node.timeouts)
    }
    const before = this.#seen.get(redlock)
    for (const [server, count] of now) {
      const more = Math.max(0, count - (before?.get(server) ?? 0))
      this.all.set(server, (this.all.get(server) ?? 0) + more)
    }
    this.#seen.set(redlock, now)
  }
}

function beginToObserve(meter: Meter): Observed {
  const [managers, timeouts] = [new Map<Redlock, number>(), new Timeouts()]
  observed.set(meter, { managers, timeouts })
  const held = meter.createObservableUpDownCounter('quorlock.locks.held', {
    unit: '{lock}',
    description: 'Locks that are held now',
  })
  const state = meter.createObservableGauge('quorlock.node.state', {
    description: '1 for the state that a node is in',
  })
  const counted = meter.createObservableCounter('quorlock.node.timeouts', {
    unit: '{timeout}',
    description: 'How often a node did not answer in time',
  })
  const look: Parameters<Meter['addBatchObservableCallback']>[0] = (result) => {
    // What is left out keeps its last value in the SDK, so that everything has a value in each reading.
    const all = [...managers.keys()].map((redlock) => ({ redlock, stats: redlock.stats() }))
    for (const { redlock, stats } of all) timeouts.count(redlock, stats)
    for (const [server, count] of timeouts.all) result.observe(counted, count, attributesOf(server))
    result.observe(held, sum(all.map(({ stats }) => stats.held)))
    // A Redlock that is closed sees no node any more, and says of each that it is down.
    const nodes = all.flatMap(({ redlock, stats }) => (redlock.isClosed ? [] : stats.nodes))
    // All that were ever seen.
    for (const server of timeouts.all.keys()) {
      const own = nodes.filter((node) => serverOf(node.address) === server)
      const attributes = attributesOf(server)
      // Managers with the same node may see it in two states for a moment.
      for (const name of STATES) {
        const isIn = own.some((node) => node.state === name)
        result.observe(state, Number(isIn), { ...attributes, 'quorlock.node.state': name })
      }
    }
  }
  meter.addBatchObservableCallback(look, [held, state, counted])
  return { managers, timeouts }
}

/** The address of a node without its database. */
function serverOf(address: string): string {
  return address.replace(/(?<=:\d+)\/.*|\?db=.*/, '')
}

/**
 * Where a server is, as the semantic conventions of OpenTelemetry name it: without a port for a unix socket, and for a node in
 * memory, which is named as a whole.
 */
function attributesOf(server: string): Attributes {
  const at = /^\w+:\/\/(?:\[(.+)\]|(.+)):(\d+)$/.exec(server)
  if (at) return { 'server.address': at[1] ?? at[2], 'server.port': Number(at[3]) }
  return { 'server.address': server.replace(/^unix:\/\//, '') }
}

export function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}

const STATES = ['connecting', 'healthy', 'unresponsive', 'quarantined', 'refusing', 'down']
