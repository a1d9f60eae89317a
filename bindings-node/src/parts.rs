//! Converts results into the values that `ts/bridge.ts` reads. Decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::{Either9, External};
use napi_derive::napi;
use quorlock::{Holder, LockError};

use crate::errors::{Failure, FailureFields};
use crate::lease::LeaseHandle;
use crate::numbers::millis;
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::votes::NodeVote;

/// One value for JavaScript.
pub(crate) type Part = Either9<
    u32,
    f64,
    bool,
    String,
    External<Arc<LeaseHandle>>,
    FailureFields,
    Vec<NodeVote>,
    (),
    HolderParts,
>;

/// Who holds a lock.
#[napi(object, object_from_js = false)]
pub struct HolderParts {
    /// What it says of itself, by name.
    pub owner: HashMap<String, String>,
    /// When it acquired the lock, in milliseconds since 1970.
    pub since: Option<f64>,
    /// The holder in words.
    pub text: String,
}

impl From<Holder> for HolderParts {
    fn from(holder: Holder) -> Self {
        let since = holder.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        let text = holder.to_string();
        Self { owner: holder.owner.into_iter().collect(), since: since.map(millis), text }
    }
}

/// A result as `ts/bridge.ts` reads it: a value, and a second one that belongs to it. A list of
/// such parts is made much faster than objects with names.
pub(crate) fn parts(outcome: Outcome, queue: &Arc<Queue>) -> (Part, Part) {
    match outcome {
        Outcome::Acquired(undelivered) => {
            let handle = LeaseHandle::undelivered(undelivered, queue);
            queue.add_lease(&handle);
            let token = handle.lease().token().to_owned();
            (Part::E(External::new(handle)), Part::D(token))
        }
        Outcome::Validity(validity) => (Part::B(millis(validity)), NOTHING),
        Outcome::Released(outcome, loss) => {
            let loss = loss.map_or(NOTHING, |error| failed(&error));
            (Part::D(outcome.name().to_owned()), loss)
        }
        Outcome::Answer(answer) => (Part::C(answer), NOTHING),
        Outcome::Count(count) => (Part::A(count), NOTHING),
        Outcome::Holder(holder) => {
            (holder.map_or(NOTHING, |holder| Part::I(holder.into())), NOTHING)
        }
        Outcome::Failed(failure) => (NOTHING, Part::F(failure.into_fields())),
        Outcome::Lost(error) => (NOTHING, failed(&error)),
        Outcome::Renewal(votes) => (Part::G(NodeVote::list(&votes)), NOTHING),
        Outcome::Broken => (NOTHING, Part::F(Failure::broken().into_fields())),
    }
}

fn failed(error: &LockError) -> Part {
    Part::F(Failure::new(error).into_fields())
}

const NOTHING: Part = Part::H(());
