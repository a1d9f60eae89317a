//! Tests sequencers on real servers: a recorded lease is verified while it is held, and no longer.

mod support;

use std::time::{Duration, Instant};

use quorlock::{ErrorKind, FaultKind, Redlock, Sequencer};

use self::support::server::Server;
use self::support::*;

fn manager(servers: &[Server]) -> Redlock {
    let settings = patient();
    Redlock::builder().nodes(urls(servers)).node_settings(settings).build().expect("three nodes")
}

fn three() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

#[test]
fn a_lease_is_verified_until_it_is_released() {
    run(async {
        let servers = three();
        let (locks, others) = (manager(&servers), manager(&servers));
        let lease = locks.lock_all(["r", "a@b"]).acquire().await.expect("it is free");
        let sequencer = lease.sequencer().expect("fencing is on");
        assert_eq!(others.verify(&sequencer).await.ok(), Some(false), "it was not recorded");
        assert!(lease.record_sequencer().await);
        assert_eq!(others.verify(&sequencer).await.ok(), Some(true));
        let older = Sequencer::new(sequencer.resources(), sequencer.token() - 1).unwrap();
        assert_eq!(others.verify(&older).await.ok(), Some(false));
        let elsewhere = Sequencer::new(["r2"], sequencer.token()).unwrap();
        assert_eq!(others.verify(&elsewhere).await.ok(), Some(false));
        lease.release().await.expect("it is held");
        assert_eq!(others.verify(&sequencer).await.ok(), Some(false));
        let kept = servers.iter().map(|it| it.ask().call(&["KEYS", "quorlock:sequencer:*"]));
        assert_eq!(kept.collect::<String>(), "", "the record has gone with the lock");
    });
}

#[test]
fn a_refused_attempt_makes_no_lease_old() {
    run(async {
        let servers = three();
        let (locks, others) = (manager(&servers), manager(&servers));
        let lease = locks.lock("r").acquire().await.expect("it is free");
        assert!(lease.record_sequencer().await);
        let refused = others.lock("r").try_once().acquire().await;
        assert_eq!(refused.expect_err("it is held").kind(), ErrorKind::NotAcquired);
        let sequencer = lease.sequencer().expect("fencing is on");
        assert_eq!(others.verify(&sequencer).await.ok(), Some(true));
    });
}

#[test]
fn a_later_lease_makes_the_earlier_one_old() {
    run(async {
        let servers = three();
        let locks = manager(&servers);
        let first = locks.lock("r").acquire().await.expect("it is free");
        first.record_sequencer().await;
        let old = first.sequencer().expect("fencing is on");
        // The holder does not notice.
        for server in &servers {
            server.ask().call(&["DEL", "r"]);
        }
        let second = locks.lock("r").acquire().await.expect("it is free");
        assert_eq!(locks.verify(&old).await.ok(), Some(false));
        second.record_sequencer().await;
        assert_eq!(locks.verify(&old).await.ok(), Some(false));
        let new = second.sequencer().expect("fencing is on");
        assert_eq!(locks.verify(&new).await.ok(), Some(true));
        // The record is the second's by now.
        assert_eq!(first.check().await.expect_err("gone").kind(), ErrorKind::LeaseLost);
        first.release().await.expect("it was not released before");
        assert_eq!(locks.verify(&new).await.ok(), Some(true));
    });
}

#[test]
fn the_record_is_kept_by_renewals() {
    run(async {
        let servers = three();
        let locks = manager(&servers);
        let lock = locks.lock("r").ttl(Duration::from_millis(600)).auto_extend(true);
        let lease = lock.acquire().await.expect("it is free");
        lease.record_sequencer().await;
        let sequencer = lease.sequencer().expect("fencing is on");
        let mut ask = servers[0].ask();
        assert_eq!(ask.call(&["DEL", "quorlock:sequencer:{r}"]), "1");
        eventually("the next renewal", || ask.call(&["EXISTS", "quorlock:sequencer:{r}"]) == "1")
            .await;
        assert_eq!(locks.verify(&sequencer).await.ok(), Some(true));
    });
}

#[test]
fn an_extension_keeps_the_record_for_as_long_as_the_keys() {
    run(async {
        let servers = three();
        let locks = manager(&servers);
        let lease = locks.lock("r").ttl(Duration::from_secs(5)).acquire().await.expect("free");
        lease.record_sequencer().await;
        lease.extend(Some(Duration::from_secs(60))).await.expect("a quorum has the keys");
        let mut ask = servers[0].ask();
        eventually("the longer record", || {
            ask.number(&["PTTL", "quorlock:sequencer:{r}"]) > 30_000
        })
        .await;
    });
}

/// Its client may have ended: another one extends the lease in its place.
#[test]
fn a_client_that_takes_a_lease_over_keeps_its_records() {
    run(async {
        let servers = three();
        let others = manager(&servers);
        let owned = Redlock::builder().nodes(urls(&servers)).owner([("service", "billing")]);
        let lock = owned.build().expect("three nodes").lock("r").ttl(Duration::from_secs(5));
        let lease = lock.acquire().await.expect("it is free");
        assert!(lease.record_sequencer().await);
        let sequencer = lease.sequencer().expect("fencing is on");
        let ttls = || {
            let mut ask = servers[0].ask();
            ["quorlock:sequencer:{r}", "quorlock:owner:{r}"].map(|key| ask.number(&["PTTL", key]))
        };
        eventually("both records", || ttls().iter().all(|ttl| *ttl > 0)).await;
        let longer = others.lock("r").ttl(Duration::from_secs(60));
        let taken = longer.lease(lease.token()).expect("a token");
        taken.extend(None).await.expect("a quorum has the keys");
        eventually("longer records", || ttls().iter().all(|ttl| *ttl > 30_000)).await;
        assert_eq!(others.verify(&sequencer).await.ok(), Some(true));
        assert_eq!(
            others.holder("r").await.unwrap().expect("it is held").owner["service"],
            "billing"
        );
        let renewed = others.lock("r").ttl(Duration::from_millis(600)).auto_extend(true);
        let renewing = renewed.lease(lease.token()).expect("a token");
        renewing.extend(None).await.expect("a quorum has the keys");
        let until = Instant::now() + Duration::from_millis(900); // longer than that ttl
        eventually("renewals", || Instant::now() > until).await;
        assert!(ttls().iter().all(|ttl| *ttl > 0), "{:?}", ttls());
        assert_eq!(others.verify(&sequencer).await.ok(), Some(true));
        renewing.release().await.expect("it is held");
    });
}

#[test]
fn a_lease_in_its_lock_delay_is_not_current() {
    run(async {
        let servers = three();
        let locks = manager(&servers);
        let lock = locks.lock("r").ttl(Duration::from_millis(300));
        let lease = lock.lock_delay(Duration::from_secs(20)).acquire().await.expect("it is free");
        lease.record_sequencer().await;
        let sequencer = lease.sequencer().expect("fencing is on");
        assert_eq!(locks.verify(&sequencer).await.ok(), Some(true));
        lease.lost().await;
        // The holder leaves a little for the drift of clocks. A machine that stands still gets errors
        // meanwhile.
        let is_over = async {
            while locks.verify(&sequencer).await.ok() != Some(false) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_over).await.expect("it ends soon");
        assert_eq!(servers[0].ask().call(&["EXISTS", "r"]), "1", "the delay keeps it");
    });
}

#[test]
fn nodes_that_are_down_leave_it_open() {
    run(async {
        let mut servers = three();
        let locks = manager(&servers);
        let lease = locks.lock("r").acquire().await.expect("it is free");
        assert!(lease.record_sequencer().await);
        let sequencer = lease.sequencer().expect("fencing is on");
        servers[0].kill();
        assert_eq!(locks.verify(&sequencer).await.ok(), Some(true), "a quorum is enough");
        servers[1].kill();
        let error = locks.verify(&sequencer).await.expect_err("no quorum");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable);
    });
}

#[test]
fn a_key_of_another_type_in_the_record_s_place_is_named() {
    run(async {
        let servers = three();
        let locks = manager(&servers);
        for server in &servers[..2] {
            server.ask().call(&["LPUSH", "quorlock:sequencer:{r}", "foreign"]);
        }
        let sequencer: Sequencer = "r@7".parse().unwrap();
        let error = locks.verify(&sequencer).await.expect_err("too few nodes tell");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable);
        assert!(error.to_string().contains("look at quorlock:sequencer:* with TYPE"), "{error}");
        let faults = error.votes().iter().filter_map(|it| it.answer.as_ref()?.as_ref().err());
        let kinds: Vec<_> = faults.map(quorlock::Fault::kind).collect();
        assert_eq!(kinds, [FaultKind::WrongType; 2]);
    });
}

#[test]
fn memory_keeps_no_records() {
    run(async {
        let locks = Redlock::builder().nodes(["memory://r1", "memory://r2", "memory://r3"]);
        let locks = locks.build().expect("three nodes");
        let error = locks.verify(&"r@7".parse().unwrap()).await.expect_err("none has a record");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable);
        assert!(error.to_string().contains("keep no records of sequencers"), "{error}");
    });
}
