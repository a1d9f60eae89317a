//! Tests the events and the figures of a manager, over nodes in memory and over real servers.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{
    ErrorKind, Event, EventKind, EventName, Interest, LossReason, NodeState, NodeStats,
    OnUnreachable, Redlock, ReleaseOutcome, Stats, WakeCause,
};
use support::server::Server;
use support::{run, until, urls};

/// The events that were told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Event>>>);

impl Told {
    fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = Arc::clone(&self.0);
        move |event| told.lock().unwrap().push(event.clone())
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(Event::name).collect()
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.0.lock().unwrap().iter().map(|event| event.kind().clone()).collect()
    }

    fn count(&self, name: EventName) -> usize {
        self.0.lock().unwrap().iter().filter(|event| event.kind().name() == name).count()
    }
}

fn in_memory(told: &Told) -> Redlock {
    let nodes = ["memory://", "memory://", "memory://"];
    Redlock::builder().nodes(nodes).on_event(told.listener()).build().expect("three nodes")
}

fn count(counts: &[(&'static str, u64)], name: &str) -> u64 {
    counts.iter().find(|it| it.0 == name).expect("a name").1
}

#[test]
fn a_lock_is_told_from_its_acquisition_to_its_release() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let lease = locks.lock("r").acquire().await.expect("it is free");
        let (token, fencing_token) = (lease.token().to_owned(), lease.fencing_token());
        lease.release().await.expect("it is held");
        until("it is told", || told.names() == ["acquired", "released"]).await;
        let [EventKind::Acquired { lease, attempts, votes, waited }, EventKind::Released { .. }] =
            &told.kinds()[..]
        else {
            panic!("{:?}", told.kinds())
        };
        assert_eq!(lease.resources().collect::<Vec<_>>(), ["r"]);
        assert_eq!((lease.token(), lease.fencing_token()), (&*token, fencing_token));
        assert!(
            !format!("{:?}", told.kinds()).contains(&token),
            "who knows it can release the lock"
        );
        assert_eq!((*attempts, votes.len()), (1, 3));
        assert!(*waited < Duration::from_secs(5));
        let stats = locks.stats();
        assert_eq!(count(&stats.acquisitions, "acquired"), 1);
        assert_eq!((stats.rounds, stats.held, stats.futile_rounds), (1, 0, 0));
        assert_eq!((stats.acquire_seconds.count, stats.hold_seconds.count), (1, 1));
        assert_eq!(count(&stats.releases, "released"), 1);
        for node in &stats.nodes {
            assert_eq!((node.latency_seconds.count, node.timeouts, node.state), (2, 0, "healthy"));
        }
    });
}

#[test]
fn a_lock_that_is_taken_is_told_as_contended_waiting_and_woken() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let holder = locks.lock("r").ttl(Duration::from_millis(300)).acquire().await.expect("free");
        let refused = locks.lock("r").try_once().acquire().await.expect_err("it is held");
        assert_eq!(refused.kind(), ErrorKind::NotAcquired);
        assert_eq!(told.names(), ["acquired", "contended"]);
        let EventKind::Contended { holder_ends_in, .. } = &told.kinds()[1] else { panic!() };
        let left = holder_ends_in.expect("the nodes tell");
        assert!(left <= Duration::from_millis(300), "{left:?}");
        let next = locks.lock("r").acquire().await.expect("the first one expires");
        assert!(told.count(EventName::Waiting) >= 1, "{:?}", told.names());
        assert_eq!(told.count(EventName::Waiting), told.count(EventName::Woken));
        let woken =
            |kind: &EventKind| matches!(kind, EventKind::Woken { by: WakeCause::Timer, .. });
        assert!(told.kinds().iter().any(woken));
        let stats = locks.stats();
        assert_eq!(count(&stats.acquisitions, "not_acquired"), 1);
        assert_eq!(stats.waits, u64::try_from(told.count(EventName::Waiting)).unwrap());
        assert!(count(&stats.wakes, "timer") >= 1);
        let contended = u64::try_from(told.count(EventName::Contended)).unwrap();
        assert_eq!(stats.futile_rounds, contended);
        assert_eq!(stats.rounds, contended + 2, "two rounds were won");
        drop((holder, next));
    });
}

#[test]
fn who_gives_up_is_not_woken_and_its_last_round_counts_once() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let _held = locks.lock("r").acquire().await.expect("free");
        let timeout = Duration::from_millis(50);
        let first = tokio::spawn(locks.lock("r").timeout(timeout).acquire());
        let second = tokio::spawn(locks.lock("r").timeout(timeout).acquire());
        for waiter in [first, second] {
            let error = waiter.await.unwrap().expect_err("it is held");
            assert_eq!(error.kind(), ErrorKind::AcquireTimedOut);
        }
        let stats = locks.stats();
        let contended = u64::try_from(told.count(EventName::Contended)).unwrap();
        assert_eq!(stats.futile_rounds, contended);
        assert_eq!(stats.rounds, contended + 1, "one round was won: {:?}", told.names());
        let woken = told.count(EventName::Woken);
        assert_eq!(told.count(EventName::Waiting), woken + 2, "{:?}", told.names());
    });
}

#[test]
fn a_release_by_the_same_manager_wakes_who_waits() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let holder = locks.lock("r").acquire().await.expect("free");
        let slow = |policy: quorlock::PolicyBuilder| policy.retry_delay(Duration::from_secs(30));
        let waiter = locks.lock("r").set(slow);
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        until("it waits", || told.count(EventName::Waiting) == 1).await;
        holder.release().await.expect("held");
        let _lease = waiting.await.unwrap().expect("it is free");
        let woken =
            |kind: &EventKind| matches!(kind, EventKind::Woken { by: WakeCause::Watch, .. });
        assert!(told.kinds().iter().any(woken), "{:?}", told.names());
    });
}

#[test]
fn an_acquisition_that_is_dropped_counts_as_cancelled() {
    run(async {
        let locks = in_memory(&Told::default());
        let _holder = locks.lock("r").acquire().await.expect("free");
        let lock = locks.lock("r");
        let limit = tokio::time::timeout(Duration::from_millis(20), lock.acquire()).await;
        assert!(limit.is_err());
        until("it is counted", || count(&locks.stats().acquisitions, "cancelled") == 1).await;
    });
}

#[test]
fn a_renewal_tells_how_much_validity_was_left() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let lock = locks.lock("r").ttl(Duration::from_millis(300)).auto_extend(true);
        let lease = lock.acquire().await.expect("free");
        until("it is renewed", || told.count(EventName::Extended) >= 2).await;
        let EventKind::Extended { slack, validity, .. } = &told.kinds()[1] else { panic!() };
        assert!((0.2..0.8).contains(slack), "renewed when a third is used: {slack}");
        assert!(*validity > Duration::from_millis(200), "{validity:?}");
        let before = locks.stats();
        assert!(before.renewal_slack.count >= 2);
        lease.extend(Some(Duration::from_secs(5))).await.expect("held");
        let kinds = told.kinds();
        let Some(EventKind::Extended { slack, .. }) = kinds.last() else { panic!("{kinds:?}") };
        assert!((0.2..=1.0).contains(slack), "of the validity before, not of the new one: {slack}");
        let after = locks.stats();
        assert_eq!(after.extensions, before.extensions + 1);
        assert_eq!(after.renewal_slack.count, before.renewal_slack.count, "the holder chose when");
    });
}

#[test]
fn a_loss_is_told_with_its_reason_and_once() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let lease = locks.lock("r").ttl(Duration::from_millis(80)).acquire().await.expect("free");
        lease.lost().await;
        let _ = lease.check().await.expect_err("lost");
        let lease = lease.into_lease();
        lease.release().await.expect("once");
        let losses = told.kinds().into_iter().filter_map(|kind| match kind {
            EventKind::Lost { reason, held_for, .. } => Some((reason, held_for)),
            _ => None,
        });
        let [(reason, held_for)] = losses.collect::<Vec<_>>()[..] else { panic!("once") };
        assert_eq!(reason, LossReason::Expired);
        assert!(held_for >= Duration::from_millis(60), "{held_for:?}");
        let stats = locks.stats();
        assert_eq!((count(&stats.losses, "expired"), stats.held), (1, 0));
        assert_eq!(told.count(EventName::Released), 0, "it was lost before");
    });
}

#[test]
fn a_lease_that_has_run_out_was_held_no_longer() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let ttl = Duration::from_millis(100);
        let lease = locks.lock("r").ttl(ttl).acquire().await.expect("free").into_lease();
        until("it has run out", || !lease.is_valid()).await;
        tokio::time::sleep(2 * ttl).await;
        lease.release().await.expect("once");
        let kinds = told.kinds();
        let EventKind::Released { outcome, held_for, .. } = &kinds[1] else { panic!("{kinds:?}") };
        assert_eq!(*outcome, "expired");
        assert!(*held_for <= ttl, "{held_for:?}");
        assert!(locks.stats().hold_seconds.sum <= ttl.as_secs_f64());
    });
}

#[test]
fn a_lease_whose_handle_is_dropped_is_told_as_abandoned() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        drop(locks.lock("r").acquire().await.expect("free").into_lease());
        let EventKind::Released { outcome, .. } = &told.kinds()[1] else { panic!() };
        assert_eq!(*outcome, "abandoned");
        assert_eq!((locks.stats().held, count(&locks.stats().releases, "abandoned")), (0, 1));
    });
}

#[test]
fn a_listener_hears_what_it_asked_for_until_it_ends() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&Told::default());
        let interest = Interest::NONE.and(EventName::Released).and(EventName::Lost);
        let subscription = locks.subscribe(interest, told.listener());
        let panics = locks.subscribe(Interest::ALL, |_| panic!("a listener of this test panics"));
        locks.lock("r").acquire().await.expect("free").release().await.expect("held");
        until("it is told", || told.names() == ["released"]).await;
        drop((subscription, panics));
        locks.lock("r").acquire().await.expect("free").release().await.expect("held");
        until("both are counted", || count(&locks.stats().releases, "released") == 2).await;
        assert_eq!(told.names(), ["released"]);
    });
}

#[test]
fn the_states_of_servers_are_told_and_shown() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let builder = Redlock::builder().nodes(urls(&servers)).on_event(told.listener());
        let locks = builder.build().expect("three nodes");
        support::warm_up(&locks).await;
        let url = servers[1].url();
        // The third may answer after the quorum.
        let is_known = |it: &NodeStats| {
            it.offset_seconds.is_some() && it.latency_seconds.quantile(0.5).is_some()
        };
        until("all have answered", || locks.stats().nodes.iter().all(is_known)).await;
        for node in locks.stats().nodes {
            assert!(node.offset_seconds.unwrap().abs() < 1.0, "the same machine: {node:?}");
            assert!(node.latency_seconds.quantile(0.5).unwrap() > 0.0);
        }
        servers[1].restart();
        until("it is held back", || told.count(EventName::Quarantined) == 1).await;
        let changes = told.kinds().into_iter().filter_map(|kind| match kind {
            EventKind::Node { address, from, to, .. } if *address == *url => Some((from, to)),
            _ => None,
        });
        let changes: Vec<_> = changes.collect();
        assert_eq!(changes[0], ("connecting", "healthy"), "{changes:?}");
        assert!(changes.iter().any(|change| change.0 == "healthy"), "{changes:?}");
        let quarantined = told.kinds().into_iter().find_map(|kind| match kind {
            EventKind::Quarantined { address, reason, lasts } => Some((address, reason, lasts)),
            _ => None,
        });
        let (address, reason, lasts) = quarantined.expect("told");
        assert_eq!((&*address, reason), (&*url, "restarted"));
        assert!(lasts > Duration::from_secs(1), "{lasts:?}");
        until("it is shown", || state_of(&locks.stats(), &url) == "quarantined").await;
    });
}

#[test]
fn a_server_that_hangs_counts_as_timed_out() {
    run(async {
        let servers = [Server::start(), Server::start(), Server::start()];
        let locks = Redlock::builder().nodes(urls(&servers)).build().expect("three nodes");
        support::warm_up(&locks).await;
        servers[0].pause();
        locks.lock("r").acquire().await.expect("two answer").release().await.expect("held");
        until("it is silent", || locks.nodes()[0].1 == NodeState::Unresponsive).await;
        let nodes = locks.stats().nodes;
        assert!(nodes[0].timeouts >= 1, "{nodes:?}");
        assert_eq!((nodes[1].timeouts, nodes[2].timeouts), (0, 0));
        servers[0].resume();
    });
}

#[test]
fn without_a_quorum_a_lock_that_only_saves_work_goes_on() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let warned = Arc::new(AtomicUsize::new(0));
        let count_them = Arc::clone(&warned);
        let builder = Redlock::builder().nodes(urls(&servers)).on_event(told.listener());
        let builder = builder.on_notice(move |notice| {
            let is_it =
                notice.name() == "degraded" && notice.to_string().starts_with("'r' is NOT locked");
            count_them.fetch_add(usize::from(is_it), Ordering::Relaxed);
        });
        let locks = builder.build().expect("three nodes");
        let held = locks.lock("r").acquire().await.expect("a quorum");
        let saves_work = |policy: quorlock::PolicyBuilder| {
            policy.on_unreachable(OnUnreachable::Proceed).try_once()
        };
        let refused =
            locks.lock("r").set(saves_work).acquire().await.expect_err("another holds it");
        assert_eq!(refused.kind(), ErrorKind::NotAcquired, "a holder is no lack of a quorum");
        held.release().await.expect("held");
        servers[0].kill();
        servers[1].kill();
        let error = locks.lock("r").try_once().acquire().await.expect_err("the default raises");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable);
        let lease = locks.lock("r").set(saves_work).acquire().await.expect("it goes on");
        assert!(lease.is_degraded() && !lease.is_valid());
        assert_eq!((lease.fencing_token(), lease.votes().len()), (None, 3));
        for refused in [lease.extend(None).await, lease.check().await] {
            assert_eq!(refused.expect_err("no lock").kind(), ErrorKind::QuorumUnreachable);
        }
        let before = locks.stats();
        let lease = lease.into_lease();
        assert_eq!(lease.release().await.expect("once"), ReleaseOutcome::Unknown);
        assert_eq!(lease.release().await.expect_err("twice").kind(), ErrorKind::LockNotHeld);
        assert_eq!(count(&before.acquisitions, "degraded"), 1);
        assert_eq!(count(&before.acquisitions, "unreachable"), 1, "the one that raised");
        assert_eq!((before.held, told.count(EventName::Degraded)), (0, 1));
        assert_eq!(warned.load(Ordering::Relaxed), 1);
        assert_eq!(locks.stats().releases, before.releases, "it was no lease");
    });
}

fn state_of(stats: &Stats, address: &str) -> &'static str {
    stats.nodes.iter().find(|node| &*node.address == address).expect("a node").state
}

#[test]
fn the_rounds_of_who_is_cancelled_are_counted() {
    run(async {
        let told = Told::default();
        let locks = in_memory(&told);
        let _held = locks.lock("r").acquire().await.expect("free");
        let call = tokio::spawn(locks.lock("r").acquire());
        while told.count(EventName::Waiting) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        call.abort();
        while count(&locks.stats().acquisitions, "cancelled") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stats = locks.stats();
        assert!(stats.futile_rounds >= 1);
        assert_eq!(stats.rounds, stats.futile_rounds + 1, "one round was won");
    });
}
