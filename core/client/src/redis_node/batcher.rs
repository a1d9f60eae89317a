//! Which requests go out together. Owns the batches that are still open; sends them in an order that keeps each
//! holder's commands in theirs.

use super::batch::{Batch, Request};
use super::link::Link;

/// The requests of one turn on their way to the link.
#[derive(Default)]
pub(super) struct Batcher {
    /// Extensions, or whatever came last.
    last: Option<Batch>,
    /// First grants. They let others pass: what frees a lock and what takes one come in turns.
    grants: Option<Batch>,
}

impl Batcher {
    /// Puts `request` into a batch with others, or behind them.
    pub(super) fn add(&mut self, request: Request, link: &mut Link) {
        if link.grants_natively(&request) {
            return put(&mut self.grants, request, Batch::native, link);
        }
        if self.grants.as_ref().is_some_and(|grants| grants.concerns_holder_of(&request)) {
            send(&mut self.grants, link);
        }
        if link.merges() {
            put(&mut self.last, request, Batch::new, link);
        } else {
            link.send(Batch::new(request));
        }
    }

    /// Sends what is still here.
    pub(super) fn finish(&mut self, link: &mut Link) {
        send(&mut self.last, link);
        send(&mut self.grants, link);
    }
}

fn put(
    place: &mut Option<Batch>,
    request: Request,
    alone: impl Fn(Request) -> Batch,
    link: &mut Link,
) {
    let unmerged = match place {
        Some(batch) => batch.merge(request),
        None => Some(request),
    };
    if let Some(request) = unmerged {
        send(place, link);
        *place = Some(alone(request));
    }
}

fn send(place: &mut Option<Batch>, link: &mut Link) {
    if let Some(batch) = place.take() {
        link.send(batch);
    }
}
