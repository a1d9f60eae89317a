//! One word per idea, used everywhere with this meaning and no other. Where a word has two meanings, both stand here.
//!
//! # Locks
//!
//! | word | meaning |
//! |---|---|
//! | resource | what is protected; its name is the key on every node |
//! | node | what votes: one independent Redis or Valkey master, or a node in the process (`memory://`) |
//! | server | the process behind a node; several addresses may lead to one server, which then has one vote |
//! | holder | the client that holds the lock |
//! | holder id | the random value of one round, and the value of the key |
//! | owner | what a holder says of itself in a record beside the lock (the option `owner`); proves nothing |
//! | claim | the resources and the holder id of one round |
//! | ttl | how long a lease is to last; what is asked of the nodes, where there is no lock-delay |
//! | lock-delay | how much longer than the ttl the nodes are asked to keep the key, trusted by nobody |
//! | least hold | how long a lock is kept from others from its acquisition on, however soon it is released |
//! | lease | what a won round gives |
//! | validity | how long a lease may be trusted: ttl less the time spent less the drift allowance |
//! | quorum | more than half of the nodes: `floor(N/2) + 1` |
//! | vote | granted, refused, failed or missing |
//! | verdict | pending, won or lost |
//! | round | one command to all nodes |
//! | attempt, try | one round of an acquisition, with its withdrawal if it is lost |
//! | ticket | the number that ties a reply to the round that asked |
//! | fencing token | a number that grows with every acquisition; the protected resource checks it |
//! | fence | the highest fencing token that a node has granted or was asked for, kept for each bucket of names |
//! | acquire, extend, release | what users do |
//! | grant, extend, revoke | what nodes do |
//! | refused | held by another: an answer, not a fault |
//! | fault | the node broke: no answer, or an error |
//! | error | what the caller of an operation gets (`ErrorKind`); it names the faults of the nodes |
//! | lost | proved to be over |
//! | unknown | cannot be told |
//! | heal | to give a node that lost its memory the key of a proven lease again |
//! | withdraw | to take back what an acquisition asked for, because no one wants it any more |
//!
//! # Faults
//!
//! | word | meaning |
//! |---|---|
//! | hung | a process or machine stands still: its connections stay, and it answers nothing |
//! | silent | nothing has come for some time: what others see of one that is hung, or was cut off |
//! | unresponsive | the state of a node that is connected, and silent for longer than `hang_after` |
//! | dead | the process has ended |
//! | down | the state of a node to which there is no connection, for whatever reason |
//! | unreachable | no try to connect succeeds; of a quorum (`QuorumUnreachable`): too few nodes answer |
//!
//! # Waiting
//!
//! | word | meaning |
//! |---|---|
//! | waiter | an acquisition that waits for a lock, by the name that nodes know it by |
//! | queue, nodes' queue | the waiters for one lock key on one node, in the order in which they came |
//! | place | a waiter's entry in the queues: the same on every node |
//! | process's queue | the callers of one process that wait for the same lock: one tries, and only it has a place |
//! | look (of a waiter) | the command that takes or keeps a place and tells how the lock stands |
//! | to call | of a node: to tell the first waiter that the lock is free |
//! | turn | the 50 ms for which a called waiter goes before the others |
//! | news | what a node tells a waiter without being asked; a hint, never a vote |
//! | watch | to have the server tell when a lock key changes |
//! | wake connection | the second connection to a server, for queues and news |
//!
//! # Guards
//!
//! | word | meaning |
//! |---|---|
//! | guards | they decide which nodes' grants count: a node that may have forgotten locks must not vote |
//! | guard (of a scope) | Rust's term for a value that does something when it is dropped, as `LeaseGuard` does |
//! | memory | the keys of a node since the last time that it lost some; it has a name, a number of beats and an age |
//! | canary | the key that shows which memory a node has: it is lost together with the node's other keys |
//! | beat | one rewriting of a canary, which counts them |
//! | look (of the guards) | the call that reads and writes a node's canary and notes, and reads its clock; a session calls it a probe |
//! | check-up | what such a look has read |
//! | run | of a server: what changes when it starts anew |
//! | lineage | of a server's keys: what changes when it takes them from elsewhere, from a master or a file, in one run |
//! | notes | what clients leave on a node for each other: holdings and sightings |
//! | floor | ten seconds, or a lower `max_ttl`: a node that may have forgotten locks is held back for this time at least |
//! | long lock | a lock that asks for keys for longer than the floor |
//! | holding | a note that long locks may be held, of what length, and since when |
//! | sighting | a note on another node: how many beats its memory had, and how far its clock was ahead |
//! | quarantine | the time in which a node's grants do not count; the node is quarantined, or in texts for users: held back |
//! | founding | one client's declaration that a cluster is new, so that its nodes have forgotten nothing |
//! | newcomer | a client that has not looked at the nodes before |
//!
//! # Time
//!
//! | word | meaning |
//! |---|---|
//! | boot clock | the system's monotonic clock, which goes on while the machine sleeps, and is never corrected |
//! | lost time | time for which this machine stood still together with its clocks, as the nodes show |
//! | lease clock | the boot clock and the lost time that one manager has found; leases end by it |
//!
//! # The client
//!
//! | word | meaning |
//! |---|---|
//! | manager | nodes and settings, and the locks over them: a `Redlock` object |
//! | engine | the runtime with one thread that all managers of a process share: connections, timers, renewal |
//! | to drive | a machine: to hand it replies and the time, and send what it says; the engine: to run its tasks |
//! | dial | one try to connect to a server and log in, for all users that wait for the connection |
//! | link | a session together with its share of a connection |
//! | session | the conversation with one server for one node: what is sent, in what order, and again |
//! | batch | requests that go out in one call |
//!
//! # The search
//!
//! | word | meaning |
//! |---|---|
//! | world | nodes, clients and messages at one virtual time: the state that is searched |
//! | scope | how large a world is, and which faults may happen in it |
//! | schedule | a list of steps; a golden schedule is one written by hand, as a test |
//! | mutant | the code, changed to be wrong in one way: the search must notice it |
