//! What is promised, under which assumptions, and what is not.
//!
//! # Promised
//!
//! 1. **Mutual exclusion within validity**: at most one lease of a resource is valid at a time, while (a) the
//!    clocks of client and nodes run at nearly the same rate, within the drift allowance; (b) nodes keep keys
//!    until their ttl has passed, or are seen not to (the guards); (c) a holder stops at the end of its validity.
//! 2. **Growing fencing tokens**: of two acquisitions of a resource, the later has the larger token, whatever
//!    pauses and the clocks of clients do; where nodes have forgotten tokens, while the clocks of nodes differ by less
//!    than 8 s.
//! 3. **No deadlock**: every key has a ttl. The lock is available while a majority of nodes answers.
//!
//! # Not promised
//!
//! - A process that is paused (garbage collection, a suspended machine, a slow network write) can act after
//!   its lease has ended. Only the protected resource can prevent the damage, by checking the fencing token;
//!   a lock-delay covers pauses up to its length.
//! - A majority of nodes that restart without their data have forgotten the lock, if no client is left that
//!   knows. Persist with `appendfsync always`, or keep crashed nodes down for the longest ttl in use.
//! - A majority of nodes whose clocks are set ahead together expire keys early, and look like a pause of the
//!   client. Let clocks be slewed, not stepped.
//! - Order among callers without `fair`: one that has just come may get a freed lock before those that wait.
//!
//! `SAFETY.md` has the limits of the guards and of `fair`, and how all of this was checked.
