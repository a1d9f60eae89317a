//! Decides which requests of one turn go out in one call. Owns the batches that are still open;
//! passes them on so that each holder's commands keep their order.

use super::batch::Batch;
use super::request::Request;

/// The requests of one turn, until they are sent.
#[derive(Default)]
pub(super) struct Batcher {
    /// Extensions, or the request that came last.
    last: Option<Batch>,
    /// Native first grants. Requests of other holders may be sent before them: grants and revokes come by turns, and
    /// each would otherwise end the batch of the other.
    grants: Option<Batch>,
}

/// What the session knows of a request.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    /// Whether the server's own commands should be used.
    pub(super) is_native: bool,
    /// Several leases may share a call.
    pub(super) may_merge: bool,
}

impl Batcher {
    /// Puts `request` into a batch; gives the batches to `send` that are complete by now, in order.
    pub(super) fn add(&mut self, request: Request, traits: Traits, mut send: impl FnMut(Batch)) {
        if traits.is_native {
            return put(&mut self.grants, request, Batch::native, send);
        }
        if self.grants.as_ref().is_some_and(|grants| grants.concerns_holder_of(&request)) {
            self.grants.take().into_iter().for_each(&mut send);
        }
        if traits.may_merge {
            put(&mut self.last, request, Batch::new, send);
        } else {
            send(Batch::new(request));
        }
    }

    /// Gives the batches that are left to `send`, in order.
    pub(super) fn finish(&mut self, send: impl FnMut(Batch)) {
        self.last.take().into_iter().chain(self.grants.take()).for_each(send);
    }
}

fn put(
    place: &mut Option<Batch>,
    request: Request,
    alone: impl Fn(Request) -> Batch,
    send: impl FnMut(Batch),
) {
    let unmerged = match place {
        Some(batch) => batch.merge(request),
        None => Some(request),
    };
    if let Some(request) = unmerged {
        place.replace(alone(request)).into_iter().for_each(send);
    }
}
