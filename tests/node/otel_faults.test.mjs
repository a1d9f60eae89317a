// Tests `quorlock/otel` where a tracer or a span processor throws.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { metrics } from '@opentelemetry/api'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { Redlock } from 'quorlock'
import { instrument } from 'quorlock/otel'
import { eventually } from './support/wait.mjs'

const OWN_NODES = ['memory://', 'memory://', 'memory://']

const fail = () => {
  throw new Error('a slip of the processor')
}
const quiet = () => {}
const processor = {
  onStart: quiet,
  onEnd: quiet,
  forceFlush: async () => {},
  shutdown: async () => {},
}

/** A Redlock and the warnings that it has told. */
function watched() {
  const redlock = new Redlock(OWN_NODES)
  /** @type {{ name: string, message: string }[]} */
  const warnings = []
  redlock.on('warning', (warning) => warnings.push(warning))
  return { redlock, warnings }
}

describe('quorlock/otel where a tracer throws', () => {
  const inEach = /** @type {const} */ ([
    ['onStart', 0],
    ['onEnd', 1],
  ])
  for (const [where, ofReleases] of inEach)
    it(`breaks no lock, and tells an error in ${where} once for each operation`, async () => {
      const exporter = new InMemorySpanExporter()
      const spanProcessors = [new SimpleSpanProcessor(exporter), { ...processor, [where]: fail }]
      const tracer = new BasicTracerProvider({ spanProcessors }).getTracer('test')
      const { redlock, warnings } = watched()
      // Two that fail tell it once.
      const stops = [0, 1].map(() => instrument(redlock, { tracer }))
      const lock = await redlock.acquire('r', 5000)
      assert.equal(warnings.length, 1, 'for the spans of the acquisition and of the lock')
      assert.equal(warnings[0]?.name, 'tracer-failed')
      assert.match(
        String(warnings[0]?.message),
        /^a tracer failed, .* a slip of the processor\n +at .*fail/,
      )
      await assert.rejects(redlock.acquire('r', 5000, { retryCount: 0 }), {
        name: 'ExecutionError',
      })
      assert.equal(warnings.length, 2)
      await lock.release()
      await eventually(() => redlock.stats().releases['released'] === 1)
      await eventually(() => warnings.length === 2 + ofReleases)
      const held = await redlock.acquire('s', 5000)
      const before = performance.now()
      await Promise.all(stops.map((stop) => stop()))
      assert.ok(performance.now() - before < 500)
      assert.equal(
        warnings.length,
        3 + ofReleases * (1 + stops.length),
        'each stop is an operation',
      )
      await held.release()
      await redlock.quit()
      const holds = exporter.getFinishedSpans().filter(({ name }) => name === 'quorlock.hold')
      const outcomes = holds.map(({ attributes }) => attributes['quorlock.outcome'])
      const twice = ['released', 'released', 'held', 'held']
      assert.deepEqual(outcomes, where === 'onEnd' ? twice : [])
    })

  it('counts what comes after an error of a meter', async () => {
    const meter = metrics.getMeter('test')
    const histogram = meter.createHistogram('none')
    const failing = Object.assign(Object.create(meter), {
      createHistogram: () => Object.assign(Object.create(histogram), { record: fail }),
    })
    const { redlock, warnings } = watched()
    const stop = instrument(redlock, { meter: failing })
    const lock = await redlock.acquire('r', 5000)
    await lock.extend(5000)
    await lock.release()
    const before = performance.now()
    await stop()
    assert.ok(performance.now() - before < 500, 'what was told is not waited for')
    assert.deepEqual(
      warnings.map(({ name }) => name),
      ['tracer-failed', 'tracer-failed', 'tracer-failed'],
    )
    await redlock.quit()
  })
})
