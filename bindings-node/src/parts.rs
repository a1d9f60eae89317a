//! Converts results into the values that `ts/bridge.ts` reads. Decides nothing.

use std::sync::Arc;

use napi::bindgen_prelude::{Either8, External};

use crate::errors::Failure;
use crate::lease::LeaseHandle;
use crate::numbers::millis;
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::votes::NodeVote;

/// One value for JavaScript.
pub(crate) type Part =
    Either8<u32, f64, bool, String, External<Arc<LeaseHandle>>, Failure, Vec<NodeVote>, ()>;

/// A result as `ts/bridge.ts` reads it: a value, and a second one that belongs to it. A list of
/// such parts is made much faster than objects with names.
pub(crate) fn parts(outcome: Outcome, queue: &Arc<Queue>) -> (Part, Part) {
    match outcome {
        Outcome::Acquired(guard) => {
            let handle = LeaseHandle::new(guard.deliver().into_lease(), queue);
            queue.add_lease(&handle);
            let token = handle.token().to_owned();
            (Part::E(External::new(handle)), Part::D(token))
        }
        Outcome::Validity(validity) => (Part::B(millis(validity)), NOTHING),
        Outcome::Released(outcome, loss) => {
            let loss = loss.map_or(NOTHING, |error| Part::F(Failure::new(&error)));
            (Part::D(outcome.name().to_owned()), loss)
        }
        Outcome::Answer(answer) => (Part::C(answer), NOTHING),
        Outcome::Count(count) => (Part::A(count), NOTHING),
        Outcome::Failed(error) | Outcome::Lost(error) => (NOTHING, Part::F(Failure::new(&error))),
        Outcome::Renewal(votes) => (Part::G(NodeVote::list(&votes)), NOTHING),
        Outcome::Broken => (NOTHING, Part::F(Failure::broken())),
    }
}

const NOTHING: Part = Part::H(());
