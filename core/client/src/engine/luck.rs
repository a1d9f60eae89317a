//! Whether something that may be in vain is worth another try. Knows nothing of what it is.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts what was in vain: each time about twice as many tries are left out as the time before, 255 at the most,
/// until one is of use.
///
/// ```
/// use quorlock::Luck;
///
/// let luck = Luck::default();
/// assert!(luck.take_try());
/// luck.fail();
/// luck.fail();
/// assert!(!luck.take_try());
/// assert!(luck.take_try());
/// ```
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Luck {
    /// How often it was in vain, one after the other.
    in_vain: AtomicU32,
    /// How many tries are yet to be left out.
    owed: AtomicU32,
}

impl Luck {
    /// Takes the next try; tells whether it is to be made, or was left out.
    pub fn take_try(&self) -> bool {
        let owed = self.owed.load(Ordering::Relaxed);
        self.owed.store(owed.saturating_sub(1), Ordering::Relaxed);
        owed == 0
    }

    /// A try was in vain.
    pub fn fail(&self) {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        self.owed.store((1 << in_vain) - 1, Ordering::Relaxed);
        self.in_vain.store((in_vain + 1).min(DOUBLINGS), Ordering::Relaxed);
    }

    /// A try was of use.
    pub fn succeed(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
        self.owed.store(0, Ordering::Relaxed);
    }
}

const DOUBLINGS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_tried_less_and_less() {
        let luck = Luck::default();
        for pause in [0, 1, 3, 7, 15, 31, 63, 127, 255, 255] {
            assert!(luck.take_try());
            luck.fail();
            assert!((0..pause).all(|_| !luck.take_try()));
        }
        assert!(luck.take_try());
        luck.succeed();
        assert!(luck.take_try());
        luck.fail();
        assert!(luck.take_try());
    }
}
