//! One word per idea, used everywhere with this meaning and no other.
//!
//! | word | meaning |
//! |---|---|
//! | resource | what is protected; its name is the key on every node |
//! | node | one independent Redis or Valkey master |
//! | holder id | the random value of one round, and the value of the key |
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
//! | fencing token | a number that grows with every acquisition; the protected resource checks it |
//! | acquire, extend, release | what users do |
//! | grant, extend, revoke | what nodes do |
//! | refused | held by another: an answer, not a fault |
//! | fault | the node broke: no answer, or an error |
//! | lost | proved to be over |
//! | unknown | cannot be told |
//! | heal | to give a node that lost its memory the key of a proven lease again |
//! | withdraw | to take back what an acquisition asked for, because no one wants it any more |
