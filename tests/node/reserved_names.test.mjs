// Tests that names are refused which begin like the library's own keys and would collide with them on the
// nodes.
import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ConfigError, Redlock } from 'quorlock'

describe('a resource whose name begins with quorlock:', () => {
  const redlock = new Redlock(['memory://reserved-names'])

  for (const names of [
    'quorlock:fence:{a}',
    'quorlock:',
    'quorlock:{node}:canary',
    ['a', 'quorlock:x'],
  ])
    it(`is refused: ${names}`, async () => {
      /** @param {unknown} error */
      const refused = (error) => error instanceof ConfigError && /quorlock:/.test(error.message)
      await assert.rejects(async () => redlock.acquire(names, 1000), refused)
      await assert.rejects(async () => redlock.using(names, 1000, async () => {}), refused)
    })

  it('is not the one that only looks like it', async () => {
    for (const name of ['quorlock', 'quorlock-jobs', 'my:quorlock:x', '{quorlock:}'])
      await (await redlock.acquire(name, 1000)).release()
  })
})
