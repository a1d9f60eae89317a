//! The clocks of the bench, in microseconds: one that all processes of a machine share, and processor time.
//! Windows has neither in this form; contestants still build there, and nothing is measured.

#[cfg(unix)]
pub(crate) use unix::{processor, shared};
#[cfg(not(unix))]
pub(crate) use without::{processor, shared};

#[cfg(unix)]
mod unix {
    use rustix::time::{ClockId, clock_gettime};

    /// Of the whole process so far.
    pub(crate) fn processor() -> u64 {
        micros(ClockId::ProcessCPUTime)
    }

    /// The same for every process.
    pub(crate) fn shared() -> u64 {
        micros(ClockId::Monotonic)
    }

    fn micros(clock: ClockId) -> u64 {
        let time = clock_gettime(clock);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
    }
}

#[cfg(not(unix))]
mod without {
    pub(crate) const fn processor() -> u64 {
        0
    }

    pub(crate) const fn shared() -> u64 {
        0
    }
}
