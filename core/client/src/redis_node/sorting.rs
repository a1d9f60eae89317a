//! Which letters go out together. Owns the parcels that are still open; sends them in an order that keeps each
//! holder's commands in theirs.

use super::link::Link;
use super::mail::{Letter, Parcel};

/// The letters of one turn on their way to the link.
#[derive(Default)]
pub(super) struct Sorting {
    /// Extensions, or whatever came last.
    last: Option<Parcel>,
    /// First grants. They let others pass: what frees a lock and what takes one come in turns.
    grants: Option<Parcel>,
}

impl Sorting {
    /// Puts `letter` into a parcel with others, or behind them.
    pub(super) fn add(&mut self, letter: Letter, link: &mut Link) {
        if link.grants_natively(&letter) {
            return put(&mut self.grants, letter, Parcel::native, link);
        }
        if self.grants.as_ref().is_some_and(|grants| grants.concerns_holder_of(&letter)) {
            send(&mut self.grants, link);
        }
        if link.merges() {
            put(&mut self.last, letter, Parcel::new, link);
        } else {
            link.send(Parcel::new(letter));
        }
    }

    /// Sends what is still here.
    pub(super) fn finish(&mut self, link: &mut Link) {
        send(&mut self.last, link);
        send(&mut self.grants, link);
    }
}

fn put(
    place: &mut Option<Parcel>,
    letter: Letter,
    alone: impl Fn(Letter) -> Parcel,
    link: &mut Link,
) {
    let unmerged = match place {
        Some(parcel) => parcel.merge(letter),
        None => Some(letter),
    };
    if let Some(letter) = unmerged {
        send(place, link);
        *place = Some(alone(letter));
    }
}

fn send(place: &mut Option<Parcel>, link: &mut Link) {
    if let Some(parcel) = place.take() {
        link.send(parcel);
    }
}
