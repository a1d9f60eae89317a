//! Registers callers that drive the runtime, so that only one thread drives at a time.

use std::task::Waker;

use super::{Drive, SharedRuntime, ThreadState};

/// Registers a caller that drives the runtime, or waits for the one that does.
pub(super) struct DriveGuard<'a> {
    shared: &'a SharedRuntime,
    /// No other caller drove when it began.
    pub(super) is_alone: bool,
}

impl<'a> DriveGuard<'a> {
    pub(super) fn new(shared: &'a SharedRuntime) -> Self {
        let mut drivers = shared.lock();
        drivers.callers += 1;
        drivers.calls += 1;
        if drivers.thread == ThreadState::Driving {
            shared.stop_driving.notify_one();
        }
        let is_alone = drivers.callers == 1;
        if !is_alone {
            shared.busy_poll.stop();
        }
        Self { shared, is_alone }
    }

    /// Only if nobody else drives or is about to.
    pub(super) fn try_new(
        shared: &'a SharedRuntime,
        on_available: Option<Waker>,
    ) -> Result<Self, Drive> {
        let mut drivers = shared.lock();
        if drivers.callers > 0 || drivers.is_stopped {
            return Err(Drive::Busy);
        }
        if drivers.thread == ThreadState::Driving {
            if let Some(on_available) = on_available
                && !drivers.on_available.iter().any(|other| other.will_wake(&on_available))
            {
                drivers.on_available.push(on_available);
                shared.stop_driving.notify_one();
            }
            return Err(Drive::ThreadDriving);
        }
        drivers.callers = 1;
        drivers.calls += 1;
        Ok(Self { shared, is_alone: true })
    }
}

impl Drop for DriveGuard<'_> {
    fn drop(&mut self) {
        let mut drivers = self.shared.lock();
        drivers.callers -= 1;
        let has_waiter = self.shared.busy_poll.has_recent_waiter();
        if drivers.callers == 0 && (has_waiter || drivers.thread == ThreadState::Parked) {
            // A caller that waits on another thread does not wait for TAKEOVER_AFTER.
            drivers.thread_is_needed |= has_waiter;
            self.shared.thread_wake.notify_one();
        }
    }
}
