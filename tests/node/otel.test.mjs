// Tests the spans and metrics of `quorlock/otel` with the in-memory exporters of the real SDKs.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, describe, it } from 'node:test'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { Redlock } from 'quorlock'
import { instrument } from 'quorlock/otel'
import { makeMeter } from './support/meters.mjs'
import { eventually } from './support/wait.mjs'

const OWN_NODES = ['memory://', 'memory://', 'memory://']

/** Waits for a loss that is never told, with nothing else to do. */
const PROGRAM = `
  import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
  import { Redlock } from 'quorlock'
  import { instrument } from 'quorlock/otel'

  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const redlock = new Redlock(['memory://'])
  const stop = instrument(redlock, { tracer: provider.getTracer('test') })
  const stats = redlock.stats.bind(redlock)
  redlock.stats = () => ({ ...stats(), losses: { gone: 1 } })
  await (await redlock.acquire('r', 5000)).release()
  const begun = performance.now()
  await stop()
  const took = performance.now() - begun
  const holds = exporter.getFinishedSpans().filter(({ name }) => name === 'quorlock.hold')
  const outcomes = holds.map(({ attributes }) => attributes['quorlock.outcome'])
  console.log(JSON.stringify({ outcomes, took }))
`

describe('quorlock/otel', () => {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  const { meter, points, meters } = makeMeter()
  const tracer = provider.getTracer('test')
  after(async () => meters.shutdown())

  const spans = (/** @type {string} */ name) =>
    exporter.getFinishedSpans().filter((span) => span.name === name)
  const outcomes = () =>
    spans('quorlock.hold')
      .map(({ attributes }) => String(attributes['quorlock.outcome']))
      .sort()
  /** How many holds had which outcome. */
  const lasted = async () => {
    const all = await points('quorlock.hold.duration')
    const counts = all.map(({ attributes, value }) => [
      String(attributes['quorlock.outcome']),
      /** @type {{ count: number }} */ (value).count,
    ])
    return /** @type {Record<string, number>} */ (Object.fromEntries(counts))
  }

  it('makes spans and metrics of a lock', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter })
    const caller = tracer.startSpan('caller')
    await context.with(trace.setSpan(context.active(), caller), async () => {
      const lock = await redlock.acquire('r', 5000)
      const [held] = await points('quorlock.locks.held')
      assert.equal(held?.value, 1)
      await assert.rejects(redlock.acquire('r', 5000, { retryCount: 0 }))
      await assert.rejects(redlock.acquire('r', 5000, { signal: AbortSignal.timeout(10) }))
      await lock.release()
    })
    caller.end()
    await eventually(() => spans('quorlock.hold').length === 1)
    const [won, refused, aborted] = spans('quorlock.acquire')
    const own = caller.spanContext()
    assert.equal(won?.parentSpanId, own.spanId)
    assert.deepEqual(won?.attributes, { 'quorlock.outcome': 'acquired' }, 'no name is told')
    assert.equal(refused?.attributes['quorlock.outcome'], 'not_acquired')
    assert.equal(refused?.status.code, SpanStatusCode.ERROR)
    assert.equal(refused?.status.message, 'ExecutionError', 'no name is told')
    assert.equal(refused?.attributes['error.type'], 'ExecutionError')
    assert.equal(aborted?.attributes['quorlock.outcome'], 'cancelled')
    const [hold] = spans('quorlock.hold')
    assert.equal(hold?.links[0]?.context.spanId, own.spanId)
    assert.equal(hold?.attributes['quorlock.outcome'], 'released')
    assert.equal(typeof hold?.attributes['quorlock.fencing_token'], 'number')
    const durations = await points('quorlock.acquire.duration')
    assert.equal(durations.length, 3)
    const state = await points('quorlock.node.state')
    const healthy = state.filter(({ value }) => value === 1)
    assert.deepEqual(healthy[0]?.attributes['quorlock.node.state'], 'healthy')
    stop()
    exporter.reset()
    await (await redlock.acquire('r', 5000)).release()
    assert.equal(exporter.getFinishedSpans().length, 0, 'it was stopped')
    await redlock.quit()
  })

  it('shows the managers of one meter together', async () => {
    const managers = [OWN_NODES, ['memory://x']].map((nodes) => new Redlock(nodes))
    const stops = managers.map((redlock) => instrument(redlock, { tracer, meter }))
    const locks = await Promise.all(managers.map((redlock) => redlock.acquire('r', 5000)))
    assert.deepEqual(
      (await points('quorlock.locks.held')).map(({ value }) => value),
      [2],
    )
    const addresses = (await points('quorlock.node.state')).map(
      ({ attributes }) => attributes['server.address'],
    )
    assert.deepEqual([...new Set(addresses)], ['memory://', 'memory://x'])
    stops[0]?.()
    assert.deepEqual(
      (await points('quorlock.locks.held')).map(({ value }) => value),
      [1],
    )
    stops[1]?.()
    await Promise.all(locks.map((lock) => lock.release()))
    await Promise.all(managers.map((redlock) => redlock.quit()))
  })

  it('shows a Redlock until the last that asks for it is stopped, and then that none is held', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stops = [0, 1].map(() => instrument(redlock, { tracer, meter }))
    const lock = await redlock.acquire('r', 5000)
    const held = async () => (await points('quorlock.locks.held')).map(({ value }) => value)
    assert.deepEqual(await held(), [1])
    await stops[0]?.()
    await stops[0]?.()
    assert.deepEqual(await held(), [1])
    await stops[1]?.()
    assert.deepEqual(await held(), [0], 'the SDK repeats the last value of what is left out')
    await lock.release()
    await redlock.quit()
  })

  it('ends the span of what is held when it is stopped', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter })
    exporter.reset()
    const lock = await redlock.acquire('r', 5000)
    stop()
    const [hold] = spans('quorlock.hold')
    assert.equal(hold?.attributes['quorlock.outcome'], 'held')
    await lock.release()
    await redlock.quit()
    assert.equal(spans('quorlock.hold').length, 1)
  })

  it('tells what became of locks that ended just before it is stopped', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter })
    exporter.reset()
    const before = await lasted()
    const held = await redlock.acquire('held', 5000)
    const released = await redlock.acquire('released', 5000)
    const lost = await redlock.acquire('lost', 100)
    lost.signal.addEventListener('abort', () => {})
    await released.release()
    // The event loop stands still, so that no event comes.
    const until = performance.now() + 300
    while (lost.isValid || performance.now() < until);
    const stopped = stop()
    // The release may have been told in the turn that ended it.
    const first = outcomes().filter((outcome) => outcome !== 'released')
    assert.deepEqual(first, ['held'], 'of that one nothing is under way')
    await stopped
    assert.deepEqual(outcomes(), ['held', 'lost', 'released'])
    const after = await lasted()
    for (const outcome of ['lost', 'released'])
      assert.equal(after[outcome], (before[outcome] ?? 0) + 1, outcome)
    await held.release()
    await redlock.quit()
    assert.equal(spans('quorlock.hold').length, 3)
  })

  it('counts what happened just before it is stopped', async () => {
    const redlock = new Redlock(['redis://127.0.0.1:1'], {
      onUnreachable: 'proceed',
      retryCount: 0,
    })
    const stop = instrument(redlock, { tracer, meter })
    redlock.on('warning', () => {})
    const counted = async () => Number((await points('quorlock.degraded'))[0]?.value)
    const before = await counted()
    await redlock.using('r', 5000, stop)
    assert.equal(await counted(), before + 1)
    await redlock.using('r', 5000, async () => {})
    await setImmediate()
    assert.equal(await counted(), before + 1, 'it was stopped')
    await redlock.quit()
  })

  it('does not keep the process for what is under way when it is stopped', () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ['--input-type=module', '--eval', PROGRAM],
      { encoding: 'utf8', cwd: fileURLToPath(new URL('.', import.meta.url)) },
    )
    assert.equal(status, 0, stderr)
    const { outcomes, took } = JSON.parse(stdout)
    assert.deepEqual(outcomes, ['released'])
    assert.ok(took < 900, `${took} ms`)
  })

  it('follows an acquisition that is under way when it is stopped', async () => {
    const redlock = new Redlock(OWN_NODES)
    const first = await redlock.acquire('r', 5000)
    const stop = instrument(redlock, { tracer, meter })
    exporter.reset()
    const waiting = redlock.acquire('r', 5000)
    await stop()
    await first.release()
    const second = await waiting
    assert.deepEqual(
      spans('quorlock.acquire').map(({ attributes }) => attributes['quorlock.outcome']),
      ['acquired'],
    )
    await second.release()
    await (await redlock.acquire('r', 5000)).release()
    assert.equal(spans('quorlock.acquire').length, 1, 'what begins later is not followed')
    assert.equal(spans('quorlock.hold').length, 0)
    await redlock.quit()
  })

  it('ends a lock that has run out with its validity, released late, lost or not at all', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter })
    exporter.reset()
    await redlock.acquire('r', 200)
    const lock = await redlock.acquire('extended', 200)
    const lost = await redlock.acquire('lost', 600)
    await lock.extend(400)
    await eventually(() => !lost.isValid)
    await sleep(300)
    await assert.rejects(lock.release())
    await assert.rejects(lost.extend(600))
    await eventually(() => outcomes().length === 2)
    const before = performance.now()
    await stop()
    assert.ok(performance.now() - before < 500)
    assert.deepEqual(outcomes(), ['expired', 'expired', 'lost'])
    const lengths = spans('quorlock.hold').map(({ duration: [s, ns] }) => s * 1000 + ns / 1e6)
    const [first = 0, second = 0, third = 0] = lengths.sort((one, other) => one - other)
    assert.ok(first > 100 && first < 250, `${first} ms`)
    assert.ok(second > 300 && second < 500, `${second} ms`)
    assert.ok(third > 500 && third < 700, `${third} ms`)
    await redlock.quit()
  })

  it('asks each Redlock once for a reading', async () => {
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter })
    let asked = 0
    const ask = redlock.stats.bind(redlock)
    redlock.stats = () => {
      asked += 1
      return ask()
    }
    await points('quorlock.locks.held')
    assert.equal(asked, 1)
    await stop()
    await redlock.quit()
  })

  it('refuses options that it does not have', () => {
    const redlock = new Redlock(OWN_NODES)
    const refused = (/** @type {any} */ options, /** @type {string} */ message) =>
      assert.throws(() => instrument(redlock, options), { name: 'ConfigError', message })
    refused(
      { resourceName: true },
      "instrument() has no option 'resourceName': did you mean 'resourceNames'?",
    )
    refused(
      { provider: 1 },
      "instrument() has no option 'provider': known are resourceNames, tracer, meter",
    )
    refused(true, 'the options of instrument() must be an object, not true')
    refused(null, 'the options of instrument() must be an object, not null')
  })

  it('refuses arguments of wrong types', () => {
    const redlock = new Redlock(OWN_NODES)
    const refused = (/** @type {any} */ options, /** @type {string} */ message) =>
      assert.throws(() => instrument(redlock, options), { name: 'ConfigError', message })
    refused({ resourceNames: 'x' }, 'resourceNames must be true or false, not a string')
    refused({ tracer: 5 }, 'tracer must be a Tracer of OpenTelemetry, not 5')
    refused({ meter: {} }, 'meter must be a Meter of OpenTelemetry, not an object')
    for (const [given, shown] of /** @type {any[]} */ ([
      [null, 'null'],
      [{}, 'an object'],
    ]))
      assert.throws(() => instrument(given), {
        name: 'ConfigError',
        message: `instrument() needs a Redlock, not ${shown}`,
      })
  })

  it('counts losses, and tells names if that is asked for', async () => {
    exporter.reset()
    const redlock = new Redlock(OWN_NODES)
    const stop = instrument(redlock, { tracer, meter, resourceNames: true })
    const losses = async () => {
      const all = await points('quorlock.lost')
      const counts = all.map(({ attributes, value }) => [attributes['quorlock.reason'], value])
      return Object.fromEntries(counts)
    }
    const before = await losses()
    const lock = await redlock.acquire(['a', 'b'], 100)
    lock.signal.addEventListener('abort', () => {})
    await eventually(() => spans('quorlock.hold').length === 1)
    const [hold] = spans('quorlock.hold')
    assert.deepEqual(hold?.attributes['quorlock.resource'], ['a', 'b'])
    assert.equal(hold?.attributes['error.type'], 'LeaseLostError')
    assert.equal(hold?.status.code, SpanStatusCode.ERROR)
    assert.deepEqual(await losses(), { ...before, expired: (before['expired'] ?? 0) + 1 })
    assert.deepEqual(Object.keys(before), ['expired', 'gone', 'held-too-long'])
    await (await redlock.acquire('one', 5000)).release()
    await eventually(() => spans('quorlock.hold').length === 2)
    for (const name of ['quorlock.acquire', 'quorlock.hold'])
      assert.deepEqual(spans(name).at(-1)?.attributes['quorlock.resource'], ['one'], name)
    stop()
    await redlock.quit()
  })
})
