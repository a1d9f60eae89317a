// Tests that the golden schedules of tests/conformance hold for the Node package. The Python program there
// owns time and the scripted nodes; the package runs in support/conformance_client.mjs.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { before, describe, it } from 'node:test'
import { python, root } from './support/harness.mjs'

const names = readdirSync(`${root}tests/conformance/cases`)
  .filter((file) => file.endsWith('.txt'))
  .map((file) => file.slice(0, -'.txt'.length))

describe('a golden schedule', () => {
  /** @type {Map<string, {status: string, reason: string}>} */
  const results = new Map()

  before(async () => {
    const words = ['-m', 'tests.conformance', 'node', '--json']
    const child = spawn(python(), words, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] })
    for await (const line of createInterface({ input: child.stdout })) {
      const result = JSON.parse(line)
      results.set(result.name, result)
    }
  })

  for (const name of names) {
    it(`holds: ${name}`, (test) => {
      const { status, reason } = results.get(name) ?? { status: 'not run', reason: '' }
      if (status === 'left out') test.skip(reason)
      else assert.equal(status, 'held', reason)
    })
  }

  it('is rarely left out', (test) => {
    const leftOut = names.filter((name) => results.get(name)?.status === 'left out')
    test.diagnostic(`${names.length - leftOut.length} of ${names.length} cases run`)
    assert.ok(leftOut.length <= 1, leftOut.join(', '))
  })
})
