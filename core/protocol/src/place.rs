//! A caller's place in the queue for a lock. Owns how a waiter is named and how places are ordered; knows no node.

use std::fmt;

/// Names one acquisition that waits, over all processes.
///
/// Written as `w`, the process in 16 hex digits, a dot and the number in 8, for example
/// `w00000000000000ab.00000007`: that is how nodes keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// Drawn at random by each process: news for its waiters goes to its channel.
    pub process: u64,
    /// Tells the acquisitions of the process apart.
    pub number: u32,
}

impl fmt::Display for Waiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "w{:016x}.{:08x}", self.process, self.number)
    }
}

/// A place in the queue for a lock: the same on every node, however often it is taken.
///
/// Places are ordered by [`Self::arrived`], and equal ones by their waiter, so that all nodes agree who is first among
/// the places that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// When the acquisition began, in microseconds since 1970, by the nodes' clocks as far as they are known.
    pub arrived: u64,
    /// The waiter that has the place.
    pub waiter: Waiter,
}

/// What a node's queue says to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queued {
    /// How many places are before this one; `None` if the queue is full and has no place for it.
    pub rank: Option<u32>,
    /// All keys are free.
    pub is_free: bool,
    /// The node will tell when the waiter's turn comes. Otherwise the waiter must look by itself.
    pub is_told: bool,
}

impl Queued {
    /// Whether the keys are free and nobody is before this waiter.
    pub const fn is_turn(self) -> bool {
        self.is_free && matches!(self.rank, None | Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every version and binding must write the same text.
    #[test]
    fn a_waiter_is_written_in_hex() {
        let waiter = Waiter { process: 0xab, number: 7 };
        assert_eq!(waiter.to_string(), "w00000000000000ab.00000007");
    }

    #[test]
    fn the_earlier_arrival_is_first_and_then_the_lower_name() {
        let place = |arrived, number| Place { arrived, waiter: Waiter { process: 1, number } };
        assert!(place(1, 9) < place(2, 1));
        assert!(place(2, 1) < place(2, 2));
    }
}
