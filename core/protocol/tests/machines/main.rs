//! What the machines promise, one file a machine.

mod acquire;
mod extend;
mod hold;
mod inspect;
mod support;
mod withdraw;
