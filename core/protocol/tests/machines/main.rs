//! Tests the promises of the protocol's machines, one file for each machine.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unnecessary_wraps,
    reason = "a test may panic; its answers are the results that a node would give"
)]

mod acquire;
mod acquire_cancelled;
mod acquire_tokens;
mod extend;
mod extremes;
mod guard_clocks;
mod guard_founding;
mod guard_histories;
mod guard_idle;
mod guard_long_locks;
mod guard_memory;
mod guard_newcomers;
mod guard_vouching;
mod guard_waiting;
mod guard_world;
mod hold;
mod inspect;
mod life;
mod lock_delay;
mod min_hold;
mod queue;
mod settings;
mod support;
mod waiting;
mod waiting_ends;
mod waiting_first;
mod withdraw;
mod words;
