//! Stores facts about a lease that are true or not in one byte, since a process may hold many leases. Owns the list of
//! these facts.

/// The facts that are true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Marks(u8);

/// One fact.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// At the last poll its renewal had failed, and little validity was left.
    AtRisk = 1,
    /// Its user wants to be told of its loss.
    Watched = 2,
    /// Its caller waited in the nodes' queues. Others may still wait there, so the nodes tell them of its end.
    Queued = 4,
    /// Another has won it, and may go by it as well.
    TakenOver = 8,
    /// Nodes were asked to extend it since it was proved.
    Extended = 16,
}

impl Marks {
    pub(super) const fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    pub(super) const fn set(&mut self, mark: Mark, is_true: bool) {
        self.0 = if is_true { self.0 | mark as u8 } else { self.0 & !(mark as u8) };
    }
}
