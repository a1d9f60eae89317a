//! The environment of a client's machines: the clocks and the randomness of the world. Owns the
//! draws.

use quorlock_protocol::{Environment, HolderId, Moment};

use crate::print::fingerprint;

/// What a machine sees of the world.
pub(crate) struct Env<'a> {
    pub(crate) now: Moment,
    pub(crate) wall: u64,
    pub(crate) nodes_wall: Option<u64>,
    pub(crate) client: u8,
    pub(crate) seed: u64,
    pub(crate) draws: &'a mut u32,
}

impl Environment for Env<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        self.wall
    }

    fn nodes_micros(&self) -> Option<u64> {
        self.nodes_wall
    }

    /// Never the same twice: the client and the number of the draw, after four bytes that decide
    /// delays (the middle of the range in a search, anything in a walk).
    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        *self.draws += 1;
        let mut bytes = [0; HolderId::RANDOM_BYTES];
        let delay = if self.seed == 0 {
            1 << 31
        } else {
            (fingerprint(&(self.seed, self.client, *self.draws)) >> 32) as u32
        };
        bytes[..4].copy_from_slice(&delay.to_le_bytes());
        bytes[4] = self.client;
        bytes[5..9].copy_from_slice(&self.draws.to_be_bytes());
        bytes
    }
}
