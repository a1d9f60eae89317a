// For test_restart_under_many.py: many clients that hold a lock each. Says when they hold them, when each has
// seen that the second node was restarted, and ends with its input. The nodes are arguments.
import { setTimeout } from 'node:timers/promises'
import { Redlock } from 'quorlock'

const [count, ...urls] = process.argv.slice(2)
const managers = Array.from({ length: Number(count) }, () => new Redlock(urls))
const locks = await Promise.all(
  managers.map((redlock, index) =>
    redlock.acquire(`${process.pid}-${index}`, 10_000, { autoExtend: true }),
  ),
)
console.log('held')
while (!managers.every(({ nodes }) => nodes[1]?.state === 'quarantined')) await setTimeout(10)
console.log('seen')
for await (const _ of process.stdin);
await Promise.all(locks.map((lock) => lock.release()))
await Promise.all(managers.map((redlock) => redlock.close()))
