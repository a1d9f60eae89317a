//! The descriptor on which the engine waits, for a thread that waits with it.

#[cfg(unix)]
pub(crate) use unix::Descriptor;
#[cfg(not(unix))]
pub(crate) use without::Descriptor;

#[cfg(unix)]
mod unix {
    #![allow(unsafe_code, reason = "a descriptor that is known by its number has no safe form")]

    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::time::Duration;

    use quorlock::Engine;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// A copy of it.
    pub(crate) struct Descriptor(OwnedFd);

    impl Descriptor {
        /// `None` where the engine has none that is known.
        pub(crate) fn of(engine: &'static Engine) -> Option<Self> {
            let number = engine.descriptor()?;
            // SAFETY: the engine keeps it open, and lives for ever.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            borrowed.try_clone_to_owned().ok().map(Self)
        }

        /// Waits until something has come in, for `limit` at the most; for less if a signal comes.
        pub(crate) fn wait(&self, limit: Duration) {
            if let Ok(limit) = Timespec::try_from(limit) {
                // Whoever waits looks again, and for the time too.
                let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
            }
        }
    }
}

#[cfg(not(unix))]
mod without {
    use std::time::Duration;

    use quorlock::Engine;

    /// There is none.
    pub(crate) enum Descriptor {}

    impl Descriptor {
        pub(crate) fn of(_: &'static Engine) -> Option<Self> {
            None
        }

        pub(crate) fn wait(&self, _: Duration) {
            match *self {}
        }
    }
}
