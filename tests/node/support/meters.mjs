// A meter of OpenTelemetry's SDK, and what it shows.
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'

/** The provider is the test's to shut down. */
export function makeMeter() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })
  const meters = new MeterProvider({ readers: [reader] })
  /** What a reading of now shows under a name. */
  const points = async (/** @type {string} */ name) => {
    await reader.forceFlush()
    const latest = exporter.getMetrics().at(-1)
    const all = latest?.scopeMetrics.flatMap(({ metrics }) => metrics) ?? []
    return all.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []
  }
  return { meters, meter: meters.getMeter('test'), points }
}
