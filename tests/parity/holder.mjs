// For test_owner.py: asks who holds a lock, or holds it until its input ends. The nodes are arguments.
import { Redlock } from 'quorlock'

const [task, ...urls] = process.argv.slice(2)
const redlock = new Redlock(urls, { owner: { service: 'reports', zone: 'zürich' } })
if (task === 'read') {
  console.log(JSON.stringify(await redlock.holder('r')))
} else {
  const lock = await redlock.acquire('r', 30_000)
  console.log(JSON.stringify({ pid: process.pid, token: lock.value }))
  for await (const _ of process.stdin);
  await lock.release()
}
await redlock.quit()
