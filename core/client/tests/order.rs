//! Tests the order in which an extension, a renewal and a release of one lease are sent, also if
//! callers watch it or cancel.

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use quorlock::{Lease, Redlock};
use quorlock_protocol::Action;
use support::hooked::hooked;
use support::{run, until};

type OnExtend = Box<dyn Fn(Duration) + Send + Sync>;

/// A lease on three nodes, and what is to happen when one is about to be sent an extension, once it is set.
async fn watched(name: &str, ttl: Duration, renewed: bool) -> (Lease, Arc<OnceLock<OnExtend>>) {
    let on_extend = Arc::new(OnceLock::new());
    let mut builder = Redlock::builder();
    for number in 0..3 {
        let act: Arc<OnceLock<OnExtend>> = Arc::clone(&on_extend);
        builder = builder.node(hooked(&format!("order-{name}-{number}"), move |command| {
            if let (Action::Extend { key_ttl, .. }, Some(act)) = (&command.action, act.get()) {
                act(key_ttl.as_duration());
            }
        }));
    }
    let locks = builder.build().expect("three nodes");
    let lock = locks.lock("r").ttl(ttl).auto_extend(renewed);
    (lock.acquire().await.expect("it is free").into_lease(), on_extend)
}

fn set(on_extend: &OnceLock<OnExtend>, act: impl Fn(Duration) + Send + Sync + 'static) {
    assert!(on_extend.set(Box::new(act)).is_ok(), "it is set once");
}

#[test]
fn an_extension_does_not_overtake_a_renewal_that_is_being_sent() {
    run(async {
        let (lease, on_extend) = watched("overtaking", SHORT, true).await;
        let extended = Arc::new(OnceLock::new());
        let (own, result) = (lease.clone(), Arc::clone(&extended));
        let (came, coming): (Sender<()>, Receiver<()>) = channel();
        let coming = Mutex::new(Some(coming));
        let overtaken = Arc::new(OnceLock::new());
        let seen = Arc::clone(&overtaken);
        set(&on_extend, move |ttl| {
            if ttl > SHORT {
                let _ = came.send(());
            } else if let Some(coming) = coming.lock().unwrap().take() {
                // A renewal is about to be sent; another thread extends the lease now.
                let (lease, result) = (own.clone(), Arc::clone(&result));
                thread::spawn(move || {
                    result.set(lease.engine().block_on(lease.extend(Some(LONG)))).unwrap();
                });
                let is_overtaken = coming.recv_timeout(Duration::from_millis(200)).is_ok();
                seen.set(is_overtaken).unwrap();
            }
        });
        until("the extension has ended", || extended.get().is_some()).await;
        assert_eq!(overtaken.get(), Some(&false));
        assert!(extended.get().unwrap().as_ref().unwrap() > &SHORT);
        assert!(lease.validity() > SHORT);
    });
}

#[test]
fn a_shorter_ttl_counts_once_a_quorum_has_confirmed_it() {
    run(async {
        let (lease, on_extend) = watched("shorter", LONG, false).await;
        let trusted = Arc::new(Mutex::new(Vec::new()));
        let (own, seen) = (lease.clone(), Arc::clone(&trusted));
        set(&on_extend, move |_| seen.lock().unwrap().push(own.validity()));
        lease.extend(Some(SHORT)).await.expect("it is held");
        let trusted = trusted.lock().unwrap();
        assert_eq!(trusted.len(), 3);
        assert!(trusted.iter().all(|validity| *validity > SHORT), "{trusted:?}");
        assert!(lease.validity() <= SHORT);
    });
}

#[test]
fn watching_or_letting_run_out_leaves_an_extension_alone() {
    run(async {
        for gives_up in [false, true] {
            let name = if gives_up { "giving-up" } else { "listening" };
            let (lease, on_extend) = watched(name, LONG, true).await;
            let (told, mut loss) = tokio::sync::mpsc::unbounded_channel();
            let own = lease.clone();
            set(&on_extend, move |_| {
                let told = told.clone();
                own.on_lost(move |_| told.send(()).unwrap());
                if gives_up {
                    own.let_run_out();
                }
            });
            lease.extend(Some(SHORT)).await.expect("it is held");
            assert!(lease.validity() <= SHORT);
            if gives_up {
                loss.recv().await.expect("it runs out");
                assert!(!lease.is_valid());
            }
            lease.withdraw();
        }
    });
}

const SHORT: Duration = Duration::from_millis(900);
const LONG: Duration = Duration::from_secs(60);
