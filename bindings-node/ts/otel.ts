// OpenTelemetry for a Redlock: `quorlock/otel`. Owns the names of spans and metrics; needs `@opentelemetry/api`.

import * as diagnostics from 'node:diagnostics_channel'

import {
  type Attributes,
  context,
  INVALID_SPAN_CONTEXT,
  type Meter,
  metrics,
  type Span,
  type SpanOptions,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api'

import { ConfigError, describe, LockError, wrongType } from './errors'
import type { RedlockEvents } from './events'
import type { RedlockStats } from './figures'
import type { Lock } from './lock'
import { ErrorBoundary, boundaryOf, shareBoundary } from './error_boundary'
import { observe, sum } from './otel_observer'
import { Redlock } from './redlock'
import { Settling } from './settling'
import type { AcquireMessage, HoldMessage } from './tracing'
import { nearest } from './unknown'

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
 * on. Returns a function that ends it: the spans of locks that are held then end with the outcome `held`, and
 * its promise resolves once it was told what has become of those that were released or lost just before, and
 * everything else was counted that had happened: within one second, and before the process ends for lack of
 * work. Throws a {@link ConfigError} for an unknown option or a wrong type. Needs Node 18.19 for spans.
 *
 * @example
 * ```js
 * import { instrument } from 'quorlock/otel'
 *
 * const stop = instrument(redlock)
 * ```
 */
export function instrument(redlock: Redlock, options: InstrumentOptions = {}): () => Promise<void> {
  if (!(redlock instanceof Redlock))
    throw wrongType(`instrument() needs a Redlock, not ${describe(redlock)}`)
  checkOptions(options)
  const meter = options.meter ?? metrics.getMeter('quorlock', version)
  const stops = [traceAcquisitions(redlock, options, meter), observe(redlock, meter)]
  const told = (): void => settling.check()
  const holds = traceHolds(redlock, options, meter, told)
  const counts = countEvents(redlock, meter, told)
  const settling = new Settling(() => holds.isSettled() && counts.isSettled())
  let stopped: Promise<void> | undefined
  return () => {
    for (const stop of stops.splice(0)) stop()
    stopped ??= end()
    return stopped
  }

  async function end(): Promise<void> {
    counts.end()
    holds.end()
    await settling.wait()
    holds.stop()
    counts.stop()
  }
}

/** What is counted or followed until its end was told. */
interface Following {
  /** Begins nothing any more. */
  end(): void
  /** Whether everything was told that had happened until {@link end}. */
  isSettled(): boolean
  stop(): void
}

function checkOptions(options: InstrumentOptions): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw wrongType(`the options of instrument() must be an object, not ${describe(options)}`)
  for (const name of Object.keys(options)) {
    if (OPTIONS.includes(name)) continue
    const meant = nearest(name, OPTIONS)
    const hint =
      meant === undefined ? `known are ${OPTIONS.join(', ')}` : `did you mean '${meant}'?`
    throw new ConfigError(`instrument() has no option '${name}': ${hint}`)
  }
  const { resourceNames, tracer, meter } = options
  if (typeof (resourceNames ?? false) !== 'boolean')
    throw wrongType(`resourceNames must be true or false, not ${describe(resourceNames)}`)
  if (tracer != null && typeof tracer.startSpan !== 'function')
    throw wrongType(`tracer must be a Tracer of OpenTelemetry, not ${describe(tracer)}`)
  if (meter != null && typeof meter.createHistogram !== 'function')
    throw wrongType(`meter must be a Meter of OpenTelemetry, not ${describe(meter)}`)
}

function traceAcquisitions(redlock: Redlock, options: InstrumentOptions, meter: Meter): () => void {
  const duration = meter.createHistogram('quorlock.acquire.duration', {
    unit: 's',
    description: 'How long acquisitions took',
    advice: { explicitBucketBoundaries: WAITS },
  })
  const spans = new Map<object, { span: Span; begun: number }>()
  let isOver = false
  const unsubscribe = subscribe<AcquireMessage>('quorlock:acquire', redlock, {
    start(message) {
      if (isOver) return
      const attributes = named(message.resources, options)
      const boundary = boundaryOf(redlock, message)
      const span = beginSpan('quorlock.acquire', { attributes }, options, boundary)
      spans.set(message, { span, begun: performance.now() })
    },
    asyncEnd(message) {
      const traced = spans.get(message)
      if (traced === undefined) return
      spans.delete(message)
      const outcome = outcomeOf(message)
      const [boundary, took] = [
        boundaryOf(redlock, message),
        (performance.now() - traced.begun) / 1000,
      ]
      boundary.call(() => duration.record(took, { 'quorlock.outcome': outcome }))
      const failure = message.error === undefined ? undefined : failureOf(message.error, options)
      boundary.call(() => endSpan(traced.span, outcome, { failure }))
      // Its hold begins as a part of the same operation.
      if (message.result !== undefined) shareBoundary(redlock, message, message.result)
      if (isOver && spans.size === 0) unsubscribe()
    },
  })
  return () => {
    isOver = true
    // Those that are under way are followed to their end.
    if (spans.size === 0) unsubscribe()
  }
}

function traceHolds(
  redlock: Redlock,
  options: InstrumentOptions,
  meter: Meter,
  told: () => void,
): Following {
  const duration = meter.createHistogram('quorlock.hold.duration', {
    unit: 's',
    description: 'How long locks were held',
    advice: { explicitBucketBoundaries: HOLDS },
  })
  const holds = new Map<HoldMessage, Hold>()
  const byToken = new Map<string, Hold>()
  let isOver = false
  const forget = (message: HoldMessage): Hold | undefined => {
    const hold = holds.get(message)
    holds.delete(message)
    if (hold !== undefined) byToken.delete(hold.token)
    return hold
  }
  const unsubscribe = subscribe<HoldMessage>('quorlock:hold', redlock, {
    start(message) {
      if (isOver) return
      const fencingToken = message.lock?.fencingToken
      const attributes: Attributes = named(message.resources, options)
      if (fencingToken !== undefined) attributes['quorlock.fencing_token'] = fencingToken
      const caller = trace.getSpanContext(context.active())
      // The hold may outlast the caller's span, so it is linked as well.
      const links = caller === undefined ? [] : [{ context: caller }]
      const boundary = boundaryOf(redlock, message.lock ?? message)
      const span = beginSpan('quorlock.hold', { attributes, links }, options, boundary)
      const [begun, token] = [Date.now(), message.lock?.value ?? '']
      const hold = { span, begun, token, until: begun + (message.lock?.validity ?? 0) }
      holds.set(message, hold)
      byToken.set(token, hold)
    },
    asyncEnd(message) {
      const traced = forget(message)
      if (traced === undefined) return
      const { outcome = 'unknown', endedAt = Date.now(), heldFor = 0, reason } = message
      const boundary = boundaryOf(redlock, message)
      boundary.call(() => duration.record(heldFor / 1000, { 'quorlock.outcome': outcome }))
      const failure =
        outcome === 'lost' ? { kind: 'LeaseLostError', text: `lost: ${reason}` } : undefined
      const at = Math.max(endedAt, traced.begun)
      boundary.call(() => endSpan(traced.span, outcome, { failure, at }))
      told()
    },
  })
  // What is extended by its holder ends later.
  const unlisten = redlock._eventSource.listen('extended', ({ token, at, validity }) => {
    const hold = byToken.get(token)
    if (hold !== undefined) hold.until = at + validity
  })
  const atEnd = new ErrorBoundary(redlock)
  const end = (message: HoldMessage, outcome: string, at?: number): void => {
    const hold = forget(message)
    if (hold !== undefined) atEnd.call(() => endSpan(hold.span, outcome, { at }))
  }
  return {
    end() {
      isOver = true
      for (const message of holds.keys())
        if (message.lock?.isValid && !message.lock._isReleased) end(message, 'held')
    },
    isSettled: () => ![...holds.keys()].some(({ lock }) => isEndTold(lock)),
    stop() {
      for (const [message, { until }] of holds) {
        const { lock } = message
        if (lock === undefined || lock._isReleased) end(message, 'unknown')
        else end(message, 'expired', until)
      }
      unlisten()
      unsubscribe()
    },
  }
}

/** A lock that is held. */
interface Hold {
  readonly span: Span
  readonly begun: number
  readonly token: string
  /** When its validity ends, in milliseconds since 1970. */
  until: number
}

/** Whether an event tells the end of a lock that is over; none does if it ran out and nobody watched it. */
function isEndTold(lock: Lock | undefined): boolean {
  return lock === undefined || lock._isReleased || lock._isWatched
}

function countEvents(redlock: Redlock, meter: Meter, told: () => void): Following {
  const lost = meter.createCounter('quorlock.lost', {
    unit: '{lock}',
    description: 'Locks that were lost',
  })
  const degraded = meter.createCounter('quorlock.degraded', {
    unit: '{acquisition}',
    description: 'Work that went on without its lock',
  })
  const slack = meter.createHistogram('quorlock.renewal.slack', {
    unit: '1',
    description: 'The part of the validity that was left when a lock was prolonged',
    advice: { explicitBucketBoundaries: PARTS },
  })
  // A counter that begins with its first loss shows no increase then.
  for (const reason of Object.keys(redlock.stats().losses))
    lost.add(0, { 'quorlock.reason': reason })
  degraded.add(0)
  const seen = { lost: 0, released: 0, extended: 0, degraded: 0 }
  type Counted = keyof typeof seen
  const listen = <N extends Counted>(
    name: N,
    count: (event: RedlockEvents[N]) => void,
  ): (() => void) =>
    redlock._eventSource.listen(name, (event) => {
      new ErrorBoundary(redlock).call(() => count(event))
      seen[name] += 1
      told()
    })
  const stops = [
    listen('lost', ({ reason }) => lost.add(1, { 'quorlock.reason': reason })),
    listen('degraded', () => degraded.add(1)),
    listen('extended', (event) => slack.record(event.slack)),
    // Has a span, which counts it.
    listen('released', () => {}),
  ]
  const before = counted(redlock.stats())
  let after = before
  return {
    end() {
      after = counted(redlock.stats())
    },
    isSettled() {
      const names = Object.keys(seen) as Counted[]
      return names.every((name) => seen[name] >= after[name] - before[name])
    },
    stop() {
      for (const stop of stops) stop()
    },
  }
}

/** How many events there have been that are counted here. */
function counted({ losses, releases, extensions, acquisitions }: RedlockStats) {
  return {
    lost: sum(Object.values(losses)),
    released: sum(Object.values(releases)),
    extended: extensions,
    degraded: acquisitions['degraded'] ?? 0,
  }
}

/** Follows the channel of that name for this Redlock alone. */
function subscribe<M extends { redlock: Redlock }>(
  name: string,
  redlock: Redlock,
  handlers: { start(message: M): void; asyncEnd(message: M): void },
): () => void {
  const of = (handle: (message: M) => void) => (message: unknown) => {
    if ((message as M).redlock !== redlock) return
    boundaryOf(redlock, message as M).call(() => handle(message as M))
  }
  const none = (): void => {}
  const { start, asyncEnd } = handlers
  const all = { start: of(start), end: none, asyncStart: none, asyncEnd: of(asyncEnd), error: none }
  const channel = diagnostics.tracingChannel?.(name)
  channel?.subscribe(all)
  return () => void channel?.unsubscribe(all)
}

/** A span of the caller's; one that is not recorded where a span processor fails. */
function beginSpan(
  name: string,
  of: SpanOptions,
  options: InstrumentOptions,
  boundary: ErrorBoundary,
): Span {
  const tracer = options.tracer ?? trace.getTracer('quorlock', version)
  const span = boundary.call(() => tracer.startSpan(name, of, context.active()))
  return span ?? trace.wrapSpanContext(INVALID_SPAN_CONTEXT)
}

/** Ends a span, `at` a time in milliseconds since 1970 or now. */
function endSpan(
  span: Span,
  outcome: string,
  { failure, at }: { failure?: Failure | undefined; at?: number | undefined },
): void {
  span.setAttribute('quorlock.outcome', outcome)
  if (failure !== undefined) {
    span.setAttribute('error.type', failure.kind)
    span.setStatus({ code: SpanStatusCode.ERROR, message: failure.text })
  }
  span.end(at)
}

function named(resources: string | readonly string[], options: InstrumentOptions): Attributes {
  if (!options.resourceNames) return {}
  return { 'quorlock.resource': typeof resources === 'string' ? [resources] : [...resources] }
}

/** What a span says of an error. */
interface Failure {
  readonly kind: string
  readonly text: string
}

/** The message of an error has names of resources, which may be personal data. */
function failureOf(error: unknown, options: InstrumentOptions): Failure {
  const kind = error instanceof Error ? error.name : typeof error
  return { kind, text: options.resourceNames ? String(error) : kind }
}

function outcomeOf(message: AcquireMessage): string {
  if (message.error === undefined) return message.result?.degraded ? 'degraded' : 'acquired'
  // An acquisition that was aborted rejects with the reason of its signal.
  if (!(message.error instanceof LockError)) return 'cancelled'
  return OUTCOMES[message.error.code] ?? 'error'
}

const { version } = require('../../package.json') as { version: string }
const OPTIONS: readonly string[] = ['resourceNames', 'tracer', 'meter']
/** By the code of the error. */
const OUTCOMES: Readonly<Record<string, string>> = {
  LOCK_NOT_ACQUIRED: 'not_acquired',
  ACQUIRE_TIMED_OUT: 'timed_out',
  QUORUM_UNREACHABLE: 'unreachable',
}
/** Bounds of the histograms: the SDK's own are for milliseconds. */
const WAITS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const HOLDS = [0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600]
const PARTS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
