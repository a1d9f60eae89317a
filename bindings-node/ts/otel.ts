// OpenTelemetry for a Redlock: `quorlock/otel`. Owns the names of spans and metrics; needs `@opentelemetry/api`.

import * as diagnostics from 'node:diagnostics_channel'

import {
  type Attributes,
  context,
  type Meter,
  metrics,
  type Span,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api'

import type { Redlock } from './redlock'
import type { AcquireMessage, HoldMessage } from './tracing'

/** What may be set for {@link instrument}. */
export interface InstrumentOptions {
  /**
   * Whether spans have the names of what is locked (`quorlock.resource`), which may hold personal data.
   * Default false.
   */
  readonly resourceNames?: boolean
  /** Makes the spans. Default: the global provider's tracer `quorlock`. */
  readonly tracer?: Tracer
  /** Makes the metrics. Default: the global provider's meter `quorlock`. */
  readonly meter?: Meter
}

/**
 * Makes spans (`quorlock.acquire`, `quorlock.hold`) and metrics (`quorlock.acquire.duration`,
 * `quorlock.hold.duration`, `quorlock.locks.held`, `quorlock.lost`, `quorlock.degraded`,
 * `quorlock.renewal.slack`, `quorlock.node.state`, `quorlock.node.timeouts`) of what `redlock` does from now
 * on. Returns a function that ends it. Needs Node 18.19 for spans.
 *
 * @example
 * ```js
 * import { instrument } from 'quorlock/otel'
 *
 * const stop = instrument(redlock)
 * ```
 */
export function instrument(redlock: Redlock, options: InstrumentOptions = {}): () => void {
  const meter = options.meter ?? metrics.getMeter('quorlock')
  const stops = [traceAcquisitions(redlock, options, meter), traceHolds(redlock, options, meter)]
  stops.push(countEvents(redlock, meter), observe(redlock, meter))
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}

function traceAcquisitions(redlock: Redlock, options: InstrumentOptions, meter: Meter): () => void {
  const duration = meter.createHistogram('quorlock.acquire.duration', {
    unit: 's',
    description: 'How long acquisitions took',
  })
  const spans = new WeakMap<object, { span: Span; begun: number }>()
  return subscribe<AcquireMessage>('quorlock:acquire', redlock, {
    start(message) {
      const attributes = named(message.resources, options)
      const span = tracer(options).startSpan('quorlock.acquire', { attributes }, context.active())
      spans.set(message, { span, begun: performance.now() })
    },
    asyncEnd(message) {
      const traced = spans.get(message)
      if (traced === undefined) return
      const outcome = outcomeOf(message)
      duration.record((performance.now() - traced.begun) / 1000, { 'quorlock.outcome': outcome })
      traced.span.setAttribute('quorlock.outcome', outcome)
      if (message.error !== undefined)
        traced.span.setStatus({ code: SpanStatusCode.ERROR, message: String(message.error) })
      traced.span.end()
    },
  })
}

function traceHolds(redlock: Redlock, options: InstrumentOptions, meter: Meter): () => void {
  const duration = meter.createHistogram('quorlock.hold.duration', {
    unit: 's',
    description: 'How long locks were held',
  })
  const spans = new WeakMap<object, { span: Span; begun: number }>()
  return subscribe<HoldMessage>('quorlock:hold', redlock, {
    start(message) {
      const { fencingToken } = message.lock
      const attributes: Attributes = named(message.resources, options)
      if (fencingToken !== undefined) attributes['quorlock.fencing_token'] = fencingToken
      const caller = trace.getSpanContext(context.active())
      // The hold may outlast the caller's span, so it is linked as well.
      const links = caller === undefined ? [] : [{ context: caller }]
      const span = tracer(options).startSpan(
        'quorlock.hold',
        { attributes, links },
        context.active(),
      )
      spans.set(message, { span, begun: Date.now() })
    },
    asyncEnd(message) {
      const traced = spans.get(message)
      if (traced === undefined) return
      const { outcome = 'unknown', endedAt = Date.now(), reason } = message
      duration.record(Math.max(0, endedAt - traced.begun) / 1000, { 'quorlock.outcome': outcome })
      traced.span.setAttribute('quorlock.outcome', outcome)
      if (outcome === 'lost')
        traced.span.setStatus({ code: SpanStatusCode.ERROR, message: `lost: ${reason}` })
      traced.span.end(Math.max(endedAt, traced.begun))
    },
  })
}

function countEvents(redlock: Redlock, meter: Meter): () => void {
  const lost = meter.createCounter('quorlock.lost', { description: 'Locks that were lost' })
  const degraded = meter.createCounter('quorlock.degraded', {
    description: 'Work that went on without its lock',
  })
  const slack = meter.createHistogram('quorlock.renewal.slack', {
    unit: '1',
    description: 'The part of the validity that was left when a lock was prolonged',
  })
  const stops = [
    redlock._eventSource.listen('lost', ({ reason }) => lost.add(1, { 'quorlock.reason': reason })),
    redlock._eventSource.listen('degraded', () => degraded.add(1)),
    redlock._eventSource.listen('extended', (event) => slack.record(event.slack)),
  ]
  return () => {
    for (const stop of stops) stop()
  }
}

function observe(redlock: Redlock, meter: Meter): () => void {
  const held = meter.createObservableUpDownCounter('quorlock.locks.held', {
    description: 'Locks that are held now',
  })
  const state = meter.createObservableGauge('quorlock.node.state', {
    description: '1 for the state that a node is in',
  })
  const timeouts = meter.createObservableCounter('quorlock.node.timeouts', {
    description: 'How often a node did not answer in time',
  })
  const look: Parameters<Meter['addBatchObservableCallback']>[0] = (result) => {
    const stats = redlock.stats()
    result.observe(held, stats.held)
    for (const node of stats.nodes) {
      const address = { 'server.address': node.address }
      result.observe(timeouts, node.timeouts, address)
      for (const name of STATES)
        result.observe(state, Number(name === node.state), {
          ...address,
          'quorlock.node.state': name,
        })
    }
  }
  const observed = [held, state, timeouts]
  meter.addBatchObservableCallback(look, observed)
  return () => meter.removeBatchObservableCallback(look, observed)
}

/** Follows the channel of that name for this Redlock alone. */
function subscribe<M extends { redlock: Redlock }>(
  name: string,
  redlock: Redlock,
  handlers: { start(message: M): void; asyncEnd(message: M): void },
): () => void {
  const of = (handle: (message: M) => void) => (message: unknown) => {
    if ((message as M).redlock === redlock) handle(message as M)
  }
  const none = (): void => {}
  const { start, asyncEnd } = handlers
  const all = { start: of(start), end: none, asyncStart: none, asyncEnd: of(asyncEnd), error: none }
  const channel = diagnostics.tracingChannel?.(name)
  channel?.subscribe(all)
  return () => void channel?.unsubscribe(all)
}

function tracer(options: InstrumentOptions): Tracer {
  return options.tracer ?? trace.getTracer('quorlock')
}

function named(resources: string | readonly string[], options: InstrumentOptions): Attributes {
  if (!options.resourceNames) return {}
  return { 'quorlock.resource': typeof resources === 'string' ? resources : [...resources] }
}

function outcomeOf(message: AcquireMessage): string {
  if (message.error === undefined) return message.result?.degraded ? 'degraded' : 'acquired'
  const code = (message.error as { code?: unknown }).code
  return OUTCOMES[String(code)] ?? 'error'
}

/** By the code of the error. */
const OUTCOMES: Readonly<Record<string, string>> = {
  LOCK_NOT_ACQUIRED: 'not_acquired',
  ACQUIRE_TIMED_OUT: 'timed_out',
  QUORUM_UNREACHABLE: 'unreachable',
}
const STATES = ['connecting', 'healthy', 'unresponsive', 'quarantined', 'refusing', 'down']
