// A Node process that takes part in the demo: commands in, events out, as JSON lines.
//
//   {"do": "turns", "turns": 3}   takes the lock so often
//   {"do": "hold"}                holds it until it is lost, and tells how late that was known
//   {"do": "block", "seconds": 3} holds it while the event loop cannot run

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { LeaseLostError, Redlock } from 'quorlock'

const RESOURCE = 'demo:printer'
const redlock = new Redlock(process.argv.slice(2), {
  retryCount: -1,
  retryDelay: 100,
  retryJitter: 50,
  maxTtl: 5000, // nobody here locks for longer: restarted servers are held back for no more
})
redlock.on('error', () => {}) // refusals and dead nodes are part of the show

const say = (event, facts = {}) => console.log(JSON.stringify({ event, ...facts }))

const describe = (lock) => ({
  token: lock.fencingToken,
  granted: lock.votes.filter((vote) => vote.outcome === 'granted').length,
  nodes: lock.votes.length,
})

async function turns({ turns }) {
  for (let turn = 0; turn < turns; turn++) {
    const asked = performance.now()
    await redlock.using([RESOURCE], 5000, async (signal, { lock }) => {
      const [at, waited] = [Date.now() / 1000, performance.now() - asked]
      await sleep(30) // the work; late votes arrive meanwhile
      say('turn', { at, waited_ms: waited, ...describe(lock) })
    })
    await sleep(20)
  }
  say('done')
}

async function hold() {
  let end = 0
  let toldAt = 0
  try {
    await redlock.using([RESOURCE], 1000, async (signal, { lock }) => {
      say('held', describe(lock))
      signal.addEventListener('abort', () => (toldAt = performance.now()), { once: true })
      while (!signal.aborted) {
        if (lock.validity > 0) end = performance.now() + lock.validity
        await sleep(2)
      }
    })
  } catch (error) {
    if (!(error instanceof LeaseLostError)) throw error
    say('lost', { late_ms: toldAt - end, words: error.message })
  }
}

async function block({ seconds }) {
  await redlock.using([RESOURCE], 1000, async (signal, { lock }) => {
    say('held', describe(lock))
    const until = performance.now() + seconds * 1000
    while (performance.now() < until);
    await sleep(0)
    if (signal.aborted) throw signal.reason
    say('kept', describe(lock))
  })
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  await { turns, hold, block }[command.do](command)
}
await redlock.quit()
