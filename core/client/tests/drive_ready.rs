//! Tests that an event loop's thread drives the engine while tasks are ready, and that the engine's
//! own thread drives otherwise.
#![cfg(target_os = "linux")]

mod support;

use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use quorlock::embed::Drive;
use quorlock::{Engine, LeaseGuard, Redlock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use support::server::Server;
use support::urls;

const LONG: Duration = Duration::from_secs(20);

/// A loop that does nothing but watch an engine.
struct EventLoop {
    locks: Redlock,
    servers: Vec<Server>,
}

impl EventLoop {
    fn start(nodes: usize) -> Self {
        let servers: Vec<_> = (0..nodes).map(|_| Server::start()).collect();
        let builder = Redlock::builder().engine(Engine::start().expect("a thread"));
        let locks = builder.nodes(urls(&servers)).build().expect("valid addresses");
        Self { locks, servers }
    }

    /// Runs `operation` to its end; tells also which thread it ended on.
    fn run<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> (T, ThreadId) {
        let (tell, ended) = mpsc::channel();
        let engine = self.locks.engine();
        let task = Arc::new(Mutex::new(None));
        let begin = || {
            let running = engine.spawn(async move {
                let result = operation.await;
                let _ = tell.send((result, thread::current().id()));
            });
            *task.lock().expect("no panic") = Some(running);
        };
        let mut begin = Some(begin);
        let deadline = Instant::now() + LONG;
        loop {
            // Where another drives, it is begun from outside.
            let drive = engine
                .drive_ready(Some(on_available()), || begin.take().map_or((), |begin| begin()));
            if let Some(begin) = begin.take() {
                assert_ne!(drive, Drive::Driven);
                begin();
            }
            if let Ok(result) = ended.try_recv() {
                return result;
            }
            assert!(Instant::now() < deadline, "it takes too long");
            match drive {
                Drive::ThreadDriving => thread::park_timeout(Duration::from_millis(100)),
                Drive::Driven | Drive::Busy => wait_for(engine, Duration::from_millis(100)),
            }
        }
    }

    /// Drives as soon as the engine's own thread has stopped.
    fn drive(&self, begin: impl Fn()) {
        let deadline = Instant::now() + LONG;
        while self.locks.engine().drive_ready(Some(on_available()), &begin) != Drive::Driven {
            assert!(Instant::now() < deadline, "the engine's thread does not leave");
            thread::park_timeout(LONG);
        }
    }

    fn acquire(&self, name: &str) -> (LeaseGuard, ThreadId) {
        let lock = self.locks.lock(name).ttl(LONG).timeout(LONG);
        let (lease, ended_on) = self.run(async move { lock.acquire().await });
        (lease.expect("free"), ended_on)
    }
}

/// Waits until the engine's descriptor has something, for `limit` at the most.
fn wait_for(engine: &Engine, limit: Duration) {
    let descriptor = engine.descriptor().expect("this is Linux");
    // SAFETY: the engine outlives the call, and keeps it open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let limit = Timespec::try_from(limit).expect("short");
    let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut watched, Some(&limit)).expect("a descriptor of ours");
}

/// Unparks this thread.
fn on_available() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Waker::from(Arc::new(Unpark(thread::current())))
}

#[test]
fn a_loop_that_watches_the_descriptor_does_everything_itself() {
    // One reply an operation: what one call leaves undone, no other call does.
    let it = EventLoop::start(1);
    let me = thread::current().id();
    let mut by_itself = 0;
    for number in 0..200 {
        let (lease, acquired_on) = it.acquire(&format!("r{}", number % 3));
        let (released, released_on) = it.run(async move { lease.release().await });
        released.expect("held until now");
        by_itself += usize::from(acquired_on == me) + usize::from(released_on == me);
    }
    // On a busy machine the other thread takes over now and then.
    assert!(by_itself > 200, "{by_itself} of 400 ended on the loop's own thread");
    for server in &it.servers {
        assert_eq!(server.ask().call(&["EXISTS", "r0", "r1", "r2"]), "0");
    }
}

#[test]
fn driving_never_waits() {
    let it = EventLoop::start(3);
    let (lease, _) = it.acquire("r");
    let lock = it.locks.lock("r").timeout(LONG);
    let (tell, ended) = mpsc::channel();
    let waits = it.locks.engine().spawn(async move {
        let _ = tell.send(lock.acquire().await.is_ok());
    });
    // It waits for the lock to be free; driving does not wait for it.
    it.drive(|| ());
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    it.run(async move { lease.release().await }).0.expect("held until now");
    assert_eq!(ended.recv_timeout(LONG), Ok(true));
    drop(waits);
}

#[test]
fn the_thread_does_what_the_loop_leaves() {
    let it = EventLoop::start(3);
    let lock = it.locks.lock("r").ttl(Duration::from_secs(1)).auto_extend(true);
    let (lease, _) = it.run(async move { lock.acquire().await });
    let lease = lease.expect("free");
    let (tell, renewed) = mpsc::channel();
    lease.on_renewal(move |_| {
        let _ = tell.send(thread::current().id());
    });
    // The loop is blocked.
    for _ in 0..3 {
        let on = renewed.recv_timeout(LONG).expect("renewed by the engine's thread");
        assert_ne!(on, thread::current().id());
    }
    assert!(lease.is_valid());
    it.run(async move { lease.release().await }).0.expect("held until now");
}

#[test]
fn one_thread_drives_at_a_time() {
    let it = EventLoop::start(3);
    it.drive(|| {
        let other = it.locks.engine().clone();
        let inner = thread::spawn(move || other.drive_ready(None, || ()));
        assert_eq!(inner.join().expect("no panic"), Drive::Busy);
    });
}
