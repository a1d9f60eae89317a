//! Faults that lock libraries had before this one, and what prevents them here.
//!
//! | fault | seen in | here |
//! |---|---|---|
//! | one refused node of three fails the lock | redlock-py, redlock-plus | the quorum alone decides |
//! | one hung node blocks every call | redlock-py, aioredlock, node-redlock 4, rslock | all nodes are asked at once, decided at the quorum |
//! | an even split never settles | node-redlock 5 | lost as soon as a quorum is impossible |
//! | leases that are over when they are returned | node-redlock 5, redis-semaphore | won with no validity left is lost |
//! | validity by the wall clock | redlock-py, redlock-ng, node-redlock, redlock-universal | a monotonic clock that counts suspend |
//! | keys of a failed attempt block the next | node-redlock 5 | every lost round is revoked everywhere |
//! | one id over several rounds | redsync, aioredlock, node-redlock | a fresh id for every round |
//! | a late SET lands after the release | pottery | one ordered connection a node |
//! | locked out by one's own lost reply | redis-py, node-redlock 5, redlock-universal | the grant is idempotent |
//! | a retry count of 0 is taken for the default | redlock-py, node-redlock 4 | zero is one round |
//! | a timeout that never tries, or takes far longer | redlock-plus, redis-py | one try at least, bounded as a whole |
//! | one failed renewal ends renewal in silence | aioredlock, python-redis-lock | faults are tried again while the validity lasts |
//! | a storm of renewals | redlock-universal | one renewal after a third of the validity |
//! | renewal without an end | Redisson, `RedLock.net` | `max_hold` |
//! | the loss told late or never | node-redlock, `RedLock.net` | told by a local timer |
//! | a blocked event loop loses the lock | every library for Node | renewed on a thread of its own |
//! | expired locks extended by making the key anew | redsync, aioredlock | extending never makes a key |
//! | an expired lock takes seconds to release | node-redlock | the outcome is told at once |
//! | the body's own error is masked | node-redlock, aioredlock, pottery, redis-py | never masked |
//! | a cancelled acquisition leaves its key | redis.asyncio | dropping withdraws |
//! | one task's release frees another's lock | redis.asyncio | state belongs to an acquisition |
//! | a forked child releases its parent's lock | redis-py, pottery | a child's handles are inert |
//! | predictable tokens | several | 20 bytes of the operating system's randomness |
//!
//! # Our own
//!
//! Found before the first release, by the search of `tests/model` unless another place is named.
//!
//! | fault | what keeps it out |
//! |---|---|
//! | a release whose reply was lost told "released" for a lease that had run out, or "expired" for one that had not | an answer to a repeated revoke proves nothing after the end of the validity |
//! | a withdrawal gave up while a node could still keep a longer ttl | the end grows with every command that may keep a key alive |
//! | votes that came together with the deciding one were dropped (the Node suite) | machines judge when they are polled, not at each reply |
//! | an extension that was given up ended renewal (the Rust suite) | the watch goes on however an extension ends |
//! | a cancelled acquisition was not waited for at the end of a process (the Rust suite) | it counts as work left behind until it is gone |
//! | a release after the end of the validity told "unknown", as for a lease that was valid until then, where the nodes hung (the Python suite) | the clock's word counts where no quorum says otherwise |
//! | a signal in the first moments of a wait was lost (the Python suite, on a busy machine) | what its handler raises ends the wait, wherever it ran |
//! | a Ctrl-C between two steps of a delivery on an event loop kept other tasks waiting for what had come with it (the torture) | a result is handed over without a look at whether it is still wanted |
//! | on a Python without a GIL a forked child could wait for ever for the table of its parent's event loops, locked by a thread that is not there (the torture) | the child begins with a table of its own |
//! | an acquisition failed when Python could not tell what a callback takes, which 3.11 sometimes cannot while many threads ask (the torture) | the callback is called with the loss then |
//! | a client that had stood still took the clock of a node that was stepped meanwhile for right, and its next grant for a vote: two holders | a clock that shows more than the pause is quarantined |
//! | a quarantine that another client had begun was over at once for one that had stood still | the guards go by a clock that is never corrected: what was lost is no waiting |
//! | two managers of one process on two clusters: a step of all clocks of one cluster ended a quarantine on the other 37 s early, and a healthy lease there (found from outside) | lost time belongs to the manager whose nodes show it; the others look at their own |
//! | the keys of a lease that the nodes told as lost were taken back before the validity was over that its holder had read: two at work, after one node of five was flushed (the chaos) | they stay until they run out, or until the holder releases |
//! | newcomers held back nodes whose clocks nobody had set, on a busy machine (real servers): clocks were noted by the middle of what slow answers tell | the notes say by how much they may be wrong |
//! | callers that never had to wait, as a quorum was down or the nodes were in the process, kept the engine to themselves: renewals stood still, and what was meant for the node that was left piled up (the torture: 2 kB a call) | a call drives the engine for a moment at least |
//! | an extension that made a lost key again could be counted by the next round (on paper) | extending never makes a key |
//! | a refused client that remembers tokens for less long than the holder had the fence end sooner (on paper) | the end of a fence is only put off |
//! | a client whose clock is behind got a lower token once a node had forgotten (real servers) | proposals go by the nodes' clocks, and no node grants less than its own |
//! | a lease that was taken over got a lower token than its holder, after a late grant (real servers) | the highest of a quorum, written back |
//! | a fence for each name stayed for a week (real servers) | one table a node |
//! | a grant that was asked for again came behind the early release of its own lease, and left a key (on paper) | a grant follows nothing that ends its lease or keeps it for so long and no more |
//! | a lease that was taken over and extended never told its fencing token (a first script) | the first extension looks before it extends |
//! | the end of a block waited on an event loop that was gone, when its coroutine was thrown away (the torture) | the lock is given back without a wait |
//! | a call whose last try a standstill of the process overtook, so that commands came too late to be sent, told unreachable nodes although another held the lock | the whole rounds before it say why |
