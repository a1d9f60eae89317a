//! How a lock is won, kept and released.
//!
//! # Acquire
//!
//! 1. Read the lease clock and draw a fresh holder id. Fresh for every round, also when one is repeated:
//!    a late revoke of round one must not be able to delete the key of round two.
//! 2. Send the grant to all nodes at once. A node makes the key only if it is free.
//! 3. Decide as soon as the outcome is certain: won with a quorum of grants, lost when a quorum has become
//!    impossible. Once a process is connected, slow and dead nodes add nothing while a quorum answers.
//! 4. The validity is `ttl - elapsed - drift`, counted from before the first command was sent. If nothing
//!    is left the round is lost, whatever the votes.
//! 5. A lost round is revoked on every node to which its grant went, on the same ordered connection, without
//!    making anyone wait. A caller that another holder refused waits (below). Otherwise, and with `wait = poll`, the
//!    next round follows after a random delay, or sooner if the refusals say when the holder's keys end.
//!
//! # Wait
//!
//! A caller that waits takes a place in the queue for the lock on every node, over a second connection. A release calls
//! the first waiter of each queue, and the first also watches the key. When a quorum of nodes says that the lock is
//! free and that it is the caller's turn, a round follows and is counted as always: queues never grant. Where too few
//! nodes can tell, rounds follow after the retry delay. With `fair`, a node refuses a grant while an earlier caller has
//! a place that counts.
//!
//! # Fencing tokens
//!
//! Every node remembers the highest token it has seen, `f`, in each of 16,384 buckets of names, and has a clock of its
//! own, `T`. A round proposes `P`, the same to every node: the middle one of the nodes' clocks in microseconds, or one
//! more than the highest token known; the wall clock of the client only while it knows none of theirs. A granting node
//! answers `t`, the larger of `f + 1` and of `P` brought within a second of `T`, and remembers it, at once or while the
//! key that it made still stands; a client that it refuses may raise `f` to its own `P`.
//! The token is the highest `t`. If a quorum answered exactly that, the lease is handed out after one round trip;
//! otherwise the token is first written back until a quorum knows it. So it is with a lease that is taken over: its
//! token is the highest fence of a quorum of nodes with its keys, once a quorum of them knows it.
//!
//! Why it grows: two acquisitions share a node. Say A held it there before B did. A quorum, and so that node
//! or another shared one, knew A's token before A got its lease; B's `t` there is at least one more.
//! Neither clocks nor ttls enter the argument: tokens stay in order even when exclusion itself has
//! failed, which is what they are for. If the shared node has forgotten, its clock takes the place of the fence. A's
//! token was at most a second beyond the clock that is furthest ahead, and B's is at least `T` less a second. Ten
//! seconds at least have passed, for which a node that forgot is held back. So tokens grow while the nodes' clocks
//! differ by less than 8 s. No clock of a client enters.
//!
//! # Extend
//!
//! All nodes at once, decided by a quorum, and only before the old validity ends. A node that has lost the key
//! says so and does not count; it is healed after the quorum has proved that the lease never ended.
//! Faults prove nothing: the extension is tried again while the validity lasts.
//!
//! No node keeps a key for less than is left of it: a command that is late, or of another who has the token,
//! ends no key that a lease stands on. So an extension by a shorter ttl shortens the validity alone.
//!
//! # Hold
//!
//! A renewed lease is extended when a third of its validity is used. Its loss is reported by the
//! clock, at the end of the last proved validity, even if no node answers. Its keys are taken back then; those of a
//! lease that is not renewed, or was taken over, run out, as another with its token may have extended them.
//!
//! # Release
//!
//! Revoke on all nodes at once; the outcome is known as soon as a quorum has answered: released,
//! expired, taken by another, or unknown. Nodes that did not answer are asked again until their
//! keys have expired.
//!
//! A lease that has ended is revoked up to a limit: keys of which more is left than it asked for stay, as another who has
//! its token has extended them. One that asked for nothing beyond its validity leaves all its keys to run out.
//!
//! # Keys that outlast their lease
//!
//! With a lock-delay every grant, extension and healing asks for `ttl + lock_delay`. Validity and
//! renewal depend on the ttl alone; the time at which keys have expired depends on what was asked
//! for. After a loss only the user's release takes the keys back.
//!
//! A release within the least hold sends, in the place of a revoke, an extension by the time that
//! is left of it (longer or shorter than what the key had), plus the allowance for a fast clock. A
//! node that was not reached is asked again for the time that is then left, and to delete the key
//! once no time is left.
