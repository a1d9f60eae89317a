//! The operations on sequencers, and how JavaScript reads the text of one. Owns no rule: the core
//! says what a sequencer is, and verifies it.

use std::sync::Arc;

use napi::bindgen_prelude::{Either, External};
use napi_derive::napi;
use quorlock::{ConfigError, LockError, Sequencer};

use crate::errors::Failure;
use crate::lease::LeaseHandle;
use crate::manager::Manager;
use crate::outcome::Outcome;

/// The script that fences a write to one server.
#[napi]
pub const FENCE: &str = quorlock::embed::FENCE;

/// What a sequencer's text says.
#[napi(object, object_from_js = false)]
pub struct SequencerParts {
    /// The text as this package writes it.
    pub text: String,
    /// The names of the resources.
    pub resources: Vec<String>,
    /// The fencing token.
    pub token: f64,
}

/// The parts of a sequencer.
#[napi]
// JavaScript passes a copy, so these parameters are taken by value.
#[allow(clippy::needless_pass_by_value)]
pub fn read_sequencer(text: String) -> Either<SequencerParts, Failure> {
    match parts(&text) {
        Ok(parts) => Either::A(parts),
        Err(error) => Either::B(Failure::new(&error.into())),
    }
}

#[allow(clippy::cast_precision_loss)]
fn parts(text: &str) -> Result<SequencerParts, ConfigError> {
    let sequencer: Sequencer = text.parse()?;
    if sequencer.token() > LARGEST_EXACT {
        return Err(ConfigError::new(format!(
            "{text:?} is no sequencer of this library: its fencing token is above 2^53"
        )));
    }
    Ok(SequencerParts {
        text: sequencer.to_string(),
        resources: sequencer.resources().to_vec(),
        token: sequencer.token() as f64,
    })
}

/// The text of a lease's sequencer, if it has a fencing token.
#[napi]
pub fn sequencer(handle: &External<Arc<LeaseHandle>>) -> Option<String> {
    handle.lease().sequencer().map(|sequencer| sequencer.to_string())
}

/// Records a lease's sequencer; ends with whether a quorum has it.
#[napi]
pub fn record_sequencer(handle: &External<Arc<LeaseHandle>>, id: u32) {
    let lease = handle.lease().clone();
    handle.queue().run(handle.lease().engine(), id, async move {
        Outcome::Answer(lease.record_sequencer().await)
    });
}

/// Whether the lease behind a sequencer is still held; ends with an answer.
#[napi]
pub fn verify(manager: &External<Manager>, id: u32, text: String) {
    let locks = manager.locks().clone();
    manager.queue().run(manager.locks().engine(), id, async move {
        let answer = match text.parse::<Sequencer>() {
            Ok(sequencer) => locks.verify(&sequencer).await,
            Err(error) => Err(LockError::from(error)),
        };
        answer.map_or_else(Outcome::from, Outcome::Answer)
    });
}

/// JavaScript's numbers are exact up to here.
const LARGEST_EXACT: u64 = (1 << 53) - 1;
