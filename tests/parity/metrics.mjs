// For test_metrics.py: prints each metric of `quorlock/otel` as JSON, with its kind, unit and bounds.
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { Redlock } from 'quorlock'
import { instrument } from 'quorlock/otel'

class Reader extends MetricReader {
  async onShutdown() {}
  async onForceFlush() {}
}

const reader = new Reader()
const meter = new MeterProvider({ readers: [reader] }).getMeter('quorlock')
const redlock = new Redlock(['memory://', 'memory://', 'memory://'])
const stop = instrument(redlock, { meter })
const lock = await redlock.acquire('r', 5000)
await lock.extend(5000)
await lock.release()
/** @type {Record<string, unknown>} */
const told = {}
while (Object.keys(told).length < 8) {
  // Events come with a turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve))
  const { resourceMetrics } = await reader.collect()
  for (const { metrics } of resourceMetrics.scopeMetrics)
    for (const { descriptor, dataPoints } of metrics) {
      const value = /** @type {any} */ (dataPoints[0]?.value)
      const bounds = value?.buckets?.boundaries ?? null
      told[descriptor.name] = { unit: descriptor.unit, description: descriptor.description, bounds }
    }
}
console.log(JSON.stringify(told))
stop()
await redlock.quit()
