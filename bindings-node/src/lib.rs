//! The native half of the npm package: converts in, calls the core, converts out.
//!
//! The other half, `bindings-node/ts`, owns everything that users see (classes, promises, signals);
//! this one owns no vote, no drift and no retry.
//!
//! ```text
//!   ts/redlock.ts ──acquire(id, ...)──▶ manager.rs ──run──▶ queue.rs ──flush()──▶ the core's thread
//!   ts/bridge.ts ◀──wake, take()──────────────────────────── queue.rs ◀──put───────────┘
//! ```
#![deny(unsafe_code)]

pub mod address;
pub mod errors;
pub mod lease;
pub mod manager;
mod notices;
pub mod numbers;
pub mod options;
pub mod outcome;
pub mod queue;
pub mod votes;
