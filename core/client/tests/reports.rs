//! Tests how a manager is built, and what errors and leases tell a program.

use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    Address, Answer, Engine, ErrorKind, Fault, FaultKind, Frees, MemoryNode, NodeReport,
    NodeSettings, Redlock, Vote,
};
use quorlock_protocol::NodeId;

fn over(name: &str) -> Redlock {
    let nodes = (0..3).map(|node| format!("memory://reports-{name}-{node}"));
    Redlock::builder().nodes(nodes).build().unwrap()
}

#[tokio::test]
async fn an_error_carries_in_fields_what_it_says_in_words() {
    let locks = over("fields");
    let held = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    let lock = locks.lock_all(["b", "c"]).set(|policy| policy.retry_limit(Some(2)));
    let error = lock.acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotAcquired, "LOCK_NOT_ACQUIRED"));
    assert_eq!(error.resources(), ["b", "c"]);
    assert_eq!((error.attempts(), error.rounds().len()), (3, 3));
    assert!(error.elapsed() >= Duration::from_millis(2 * 50), "{:?}", error.elapsed());
    assert_eq!(error.rounds().last().unwrap(), error.votes());
    for (vote, (address, _)) in error.votes().iter().zip(locks.nodes()) {
        assert_eq!((&vote.address, vote.vote), (&address, Vote::Refused));
        let detail = vote.detail().unwrap();
        assert!(detail.starts_with("held by another for at most "), "{detail}");
    }
    held.release().await.unwrap();
}

#[test]
fn a_report_says_what_there_is_to_say_beyond_the_vote() {
    let detail = |answer: Option<Result<Answer, Fault>>| {
        let (address, vote) = ("redis://a:6379".into(), Vote::of(answer.as_ref()));
        NodeReport { address, vote, answer, latency: Duration::ZERO }.detail()
    };
    let theirs = |frees| detail(Some(Ok(Answer::Theirs { floor: None, frees })));
    assert_eq!(detail(None), None);
    assert_eq!(detail(Some(Ok(Answer::Ours { token: None, remaining: None }))), None);
    assert_eq!(detail(Some(Ok(Answer::Absent))).unwrap(), "it holds no key of the lease");
    let some_time = theirs(Frees::In(Duration::from_millis(1240))).unwrap();
    assert_eq!(some_time, "held by another for at most 1.2 s more");
    assert!(theirs(Frees::Never).unwrap().contains("will not expire"));
    assert_eq!(theirs(Frees::Unknown).unwrap(), "held by another");
    assert_eq!(detail(Some(Err(Fault::new(FaultKind::Busy, "busy")))).unwrap(), "busy");
}

#[tokio::test]
async fn a_lease_tells_what_it_took_and_what_became_of_it() {
    let locks = over("lease");
    let other = locks.lock("r").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let lock = locks.lock("r").set(|policy| policy.retry_delay(Duration::from_millis(200)));
    let lease = lock.acquire().await.unwrap();
    drop(other);
    assert_eq!(lease.lost_rounds().len() + 1, lease.attempts() as usize);
    assert!(lease.attempts() > 1 && lease.elapsed() > Duration::ZERO);
    let all = |vote| move |report: &NodeReport| report.vote == vote;
    assert!(lease.lost_rounds().iter().flatten().all(all(Vote::Refused)));
    assert_eq!(lease.ttl(), locks.policy().ttl().as_duration());
    assert!(format!("{:?}", &*lease).starts_with("Lease { resources: \"'r'\", validity: "));
    assert!(!lease.is_at_risk() && !lease.is_released());
    let kept = lease.clone();
    lease.release().await.unwrap();
    assert!(kept.is_released() && !kept.is_valid() && !kept.is_lost());
}

#[tokio::test]
async fn a_lock_of_settings_takes_over_a_lease_by_its_token() {
    let locks = over("adopt");
    let lease = locks.lock("r").acquire().await.unwrap();
    let taken = locks.lock("r").lease(lease.token()).unwrap();
    assert!(!taken.is_valid(), "nothing is known of it yet");
    assert!(taken.check().await.unwrap() > Duration::ZERO);
    assert_eq!(locks.lock("r").lease("").unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(locks.lock("").check().unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_closed_manager_refuses_what_comes_later() {
    let locks = over("closed");
    locks.close();
    for error in [
        locks.lock("r").acquire().await.unwrap_err(),
        locks.lock("r").acquire().await.unwrap_err(),
        locks.is_locked(["r"]).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert_eq!(error.resources(), ["r"]);
    }
}

#[tokio::test]
async fn nodes_may_be_addresses_texts_and_of_the_callers_own_make() {
    let engine = Engine::start().unwrap();
    let locks = Redlock::builder()
        .nodes(["memory://reports-mixed-a"])
        .address(Address::memory("reports-mixed-b").unwrap())
        .node(Arc::new(MemoryNode::named("reports-mixed-c")))
        .node_settings(NodeSettings {
            hang_after: Duration::from_secs(1),
            ..NodeSettings::default()
        })
        .engine(engine.clone())
        .build()
        .unwrap();
    let lease = locks.lock("r").acquire().await.unwrap();
    let names: Vec<_> = lease.votes().iter().map(|vote| vote.address.to_string()).collect();
    let wanted = ["a", "b", "c"].map(|name| format!("memory://reports-mixed-{name}"));
    assert_eq!(names, wanted);
    lease.release().await.unwrap();
    assert!(engine.drain(Duration::from_secs(10)), "nothing is left to do");
}

#[test]
fn too_many_nodes_and_twins_are_refused() {
    let build = |count: usize| {
        let nodes = (0..count).map(|node| format!("memory://reports-many-{node}"));
        Redlock::builder().nodes(nodes).check()
    };
    assert!(build(NodeId::MAX_COUNT).is_ok());
    let error = build(NodeId::MAX_COUNT + 1).unwrap_err();
    assert!(error.to_string().starts_with("at most "), "{error}");
    assert!(build(0).unwrap_err().to_string().contains("no nodes were given"));
    let twins = Redlock::builder().nodes(["localhost:1", "redis://127.0.0.1:1/3"]).check();
    assert_eq!(
        twins.unwrap_err().to_string(),
        "redis://localhost:1 and redis://127.0.0.1:1/3 are one and the same server, but a quorum needs \
         servers that fail independently: name each once"
    );
    let wrong = Redlock::builder().nodes(["memory://a", "http://b"]).check().unwrap_err();
    assert_eq!((wrong.kind(), wrong.resources().len()), (ErrorKind::Config, 0));
}
