//! Tests which thread drives the runtime, and which threads are woken.

use super::*;

#[test]
fn a_caller_that_never_waits_lets_other_tasks_run() {
    // No other thread drives.
    let shared = SharedRuntime::without_thread().unwrap();
    let (sender, mut receiver) = tokio::sync::oneshot::channel();
    shared.tasks().spawn(async { sender.send(()) });
    assert_eq!(shared.block_on(async { 7 }), 7);
    assert_eq!(receiver.try_recv(), Ok(()));
}

#[test]
fn two_callers_do_not_poll() {
    let shared = SharedRuntime::without_thread().unwrap();
    let alone = DriveGuard::new(&shared);
    let polling = shared.busy_poll.start_for_driver();
    assert!(alone.is_alone && polling.is_some());
    let second = DriveGuard::new(&shared);
    assert!(!second.is_alone);
    assert!(!shared.busy_poll.is_on());
}

#[test]
fn the_last_caller_wakes_the_thread_for_waiters() {
    // This thread plays the engine's thread.
    let shared = SharedRuntime::without_thread().unwrap();
    assert!(shared.wait_to_drive());
    drop(DriveGuard::new(&shared));
    assert!(!shared.lock().thread_is_needed);
    let _waiter = shared.busy_poll.register_waiter();
    let last = DriveGuard::new(&shared);
    drop(DriveGuard::new(&shared));
    assert!(!shared.lock().thread_is_needed, "another drives");
    drop(last);
    assert!(shared.lock().thread_is_needed);
}

#[test]
fn a_thread_asked_to_stop_for_nothing_drives_again() {
    // This thread plays the engine's thread.
    let shared = SharedRuntime::without_thread().unwrap();
    assert!(shared.wait_to_drive());
    shared.call_thread_back();
    assert!(!shared.lock().thread_is_needed);
    assert_eq!(
        shared.drive_ready(Some(Waker::noop().clone()), || (), Duration::ZERO, || true),
        Drive::ThreadDriving
    );
    shared.call_thread_back();
    shared.runtime().block_on(shared.asked_to_stop_driving());
    assert!(shared.lock().thread_is_needed);
    assert!(shared.wait_to_drive());
    assert!(!shared.lock().thread_is_needed);
}
