//! Computes the fingerprint of a state. Owns the hash function: the same in every run, and fast on
//! small fields.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The fingerprints of the states that were seen.
pub(crate) type Seen = std::collections::HashSet<u64, BuildHasherDefault<Given>>;

/// The fingerprint of `state`.
///
/// Two states of a search of `n` states share one by accident with probability `n^2 / 2^65`: three
/// in a million for ten million states. A part of a state has a fingerprint of
/// its own, so to this comes the chance that two parts share one.
pub(crate) fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = Folding(SEED);
    state.hash(&mut hasher);
    fold(hasher.0, LAST)
}

/// Multiplies to 128 bits and folds the halves together.
struct Folding(u64);

impl Folding {
    const fn mix(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, FACTOR).wrapping_add(word.rotate_left(17));
    }
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

/// Takes a fingerprint for its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Cut on purpose: both halves of the product are kept.
#[allow(clippy::cast_possible_truncation)]
const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128).wrapping_mul(right as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const LAST: u64 = 0xa076_1d64_78bd_642f;
