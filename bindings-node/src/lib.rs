//! The native half of the npm package: converts in, calls the core, converts out.
//!
//! The other half, `bindings-node/ts`, owns everything that users see (classes, promises, signals);
//! this one owns no vote, no drift and no retry.
//!
//! ```text
//!   ts/redlock.ts ──acquire(id, ...)──▶ manager.rs ──run──▶ queue.rs ──start──▶ the core
//!   ts/bridge.ts ──flush()──▶ bridge.rs ──drive──────────────────────────────────▶ │
//!   libuv ──readable──▶ uv.rs ──▶ bridge.rs ──drive──────────────────────────────▶ │
//!   ts/bridge.ts ◀──wake, take()── bridge.rs ◀──────────── queue.rs ◀──put─────────┘
//! ```
#![deny(unsafe_code)]

pub mod address;
pub mod bridge;
pub mod command;
pub mod errors;
pub mod lease;
mod leases;
mod listening;
pub mod manager;
mod notices;
pub mod numbers;
pub mod observing;
pub mod options;
pub mod outcome;
mod parts;
mod poll_budget;
mod queue;
pub mod sequencer;
mod spelling;
#[cfg_attr(not(target_os = "linux"), path = "no_uv.rs")]
mod uv;
pub mod votes;
