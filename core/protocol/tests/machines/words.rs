//! Tests the words that people and programs get: sentences, codes and names. Every one is part of
//! the interface.

use std::collections::BTreeSet;
use std::time::Duration;

use quorlock_protocol::{
    Answer, Dependence, ErrorKind, Failure, Fault, FaultKind, Frees, LossReason, NodeId, NodeVote,
    Notice, Policy, QuarantineReason, ReleaseOutcome, Resources, RoundReport, Vote,
};

use crate::support::{absent, fault, frees_in, ours, resources, theirs};

const NODES: [&str; 3] = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];

/// The sentence for a failure after `answers`; nodes that have given none are missing.
fn explain(kind: ErrorKind, answers: &[Result<Answer, Fault>], millis: u64) -> String {
    let votes = (0..NODES.len()).map(|node| NodeVote {
        vote: Vote::of(answers.get(node)),
        answer: answers.get(node).cloned(),
        took: Duration::ZERO,
    });
    let report = RoundReport { votes: votes.collect(), ..RoundReport::default() };
    let failure = Failure {
        kind,
        resources: &resources(),
        report: &report,
        addresses: &NODES,
        attempts: u32::try_from(millis / 100).unwrap(),
        elapsed: Duration::from_millis(millis),
    };
    failure.explain()
}

fn explain_without_votes() -> String {
    let report = RoundReport::default();
    let resources = resources();
    let (elapsed, addresses) = (Duration::ZERO, &NODES);
    let kind = ErrorKind::LeaseLost;
    Failure { kind, resources: &resources, report: &report, addresses, attempts: 1, elapsed }
        .explain()
}

#[test]
fn a_refusal_says_who_refused_and_when_it_may_be_free() {
    let text = explain(ErrorKind::NotAcquired, &[theirs(frees_in(300)), theirs(frees_in(4200))], 0);
    assert_eq!(
        text,
        "'r' is held by another: 2 of 3 nodes refused; free in at most 4.2 s unless extended"
    );
    let text =
        explain(ErrorKind::NotAcquired, &[theirs(Frees::Unknown), theirs(Frees::Unknown)], 0);
    assert_eq!(text, "'r' is held by another: 2 of 3 nodes refused");
}

#[test]
fn a_key_without_an_end_is_told_as_such() {
    let answers = [theirs(Frees::Never), theirs(frees_in(10)), theirs(Frees::Never)];
    let text = explain(ErrorKind::NotAcquired, &answers, 0);
    assert!(text.contains("3 of 3 nodes refused; on 2 nodes the key has no ttl"), "{text}");
    let text = explain(ErrorKind::NotAcquired, &answers[..1], 0);
    assert!(text.contains("on 1 node the key has no ttl"), "{text}");
    assert!(text.contains("delete it if its owner is gone"), "{text}");
    let one = [theirs(Frees::Never), theirs(frees_in(10)), theirs(frees_in(30))];
    let text = explain(ErrorKind::NotAcquired, &one, 0);
    assert!(text.contains("3 of 3 nodes refused; free in at most 30 ms"), "{text}");
}

#[test]
fn a_timeout_says_how_long_it_was_waited_and_how_often_tried() {
    let votes = [theirs(frees_in(35)), ours(1), fault(FaultKind::Broken)];
    assert_eq!(
        explain(ErrorKind::AcquireTimedOut, &votes, 200),
        "gave up waiting for 'r' after 200 ms and 2 attempts: held by another: 1 of 3 nodes refused, \
         1 granted, 1 failed (redis://c:6379: as the test says); free in at most 35 ms unless extended"
    );
    let text = explain(ErrorKind::AcquireTimedOut, &votes, 100);
    assert!(text.contains("after 100 ms and 1 attempt:"), "{text}");
    let text = explain(ErrorKind::AcquireTimedOut, &votes, 1500);
    assert!(text.contains("after 1.5 s and 15 attempts:"), "{text}");
}

#[test]
fn a_missing_quorum_says_what_every_node_did() {
    let votes = [fault(FaultKind::TimedOut), absent()];
    assert_eq!(
        explain(ErrorKind::QuorumUnreachable, &votes, 0),
        "no quorum for 'r': 2 of 3 nodes are needed, 1 without a key of it, \
         1 failed (redis://a:6379: as the test says); 1 more could not change that"
    );
    let votes = [fault(FaultKind::TimedOut)];
    assert_eq!(
        explain(ErrorKind::QuorumUnreachable, &votes, 0),
        "no quorum for 'r': 2 of 3 nodes are needed, 0 granted, 2 had not answered, \
         1 failed (redis://a:6379: as the test says)"
    );
    let votes = [fault(FaultKind::TimedOut), fault(FaultKind::Busy), ours(1)];
    let text = explain(ErrorKind::QuorumUnreachable, &votes, 0);
    let once = "1 granted, 2 failed (redis://a:6379, redis://b:6379: as the test says)";
    assert!(text.contains(once), "{text}");
    let text = explain(ErrorKind::QuorumUnreachable, &[ours(1), ours(1)], 0);
    assert!(text.contains("needed, 2 granted, but too late, 1 had not answered"), "{text}");
}

#[test]
fn a_standstill_is_told_with_the_time_that_is_known() {
    let report = RoundReport { stood_still: Duration::from_millis(700), ..RoundReport::default() };
    let resources = resources();
    let (kind, elapsed, addresses) = (ErrorKind::QuorumUnreachable, Duration::ZERO, &NODES);
    let text =
        Failure { kind, resources: &resources, report: &report, addresses, attempts: 1, elapsed }
            .explain();
    assert!(
        text.contains("this process stood still for 700 ms or more, or was too busy"),
        "{text}"
    );
}

#[test]
fn a_healthy_node_whose_answer_could_not_matter_is_not_accused() {
    let votes = [fault(FaultKind::Broken), fault(FaultKind::Broken)];
    assert_eq!(
        explain(ErrorKind::QuorumUnreachable, &votes, 0),
        "no quorum for 'r': 2 of 3 nodes are needed, 0 granted, 2 failed (redis://a:6379, \
         redis://b:6379: as the test says); 1 more could not change that"
    );
}

#[test]
fn a_node_that_nobody_holds_a_key_on_does_not_refuse() {
    let votes = [fault(FaultKind::Broken), absent(), fault(FaultKind::Broken)];
    let text = explain(ErrorKind::QuorumUnreachable, &votes, 0);
    assert!(text.contains("needed, 1 without a key of it, 2 failed ("), "{text}");
    assert!(!text.contains("refused"), "{text}");
}

#[test]
fn a_fault_that_names_its_node_is_not_headed_by_it_again() {
    let named = Fault::new(FaultKind::Replica, "redis://a:6379 is a replica of x:1");
    let text = explain(ErrorKind::QuorumUnreachable, &[Err(named)], 0);
    assert!(text.contains("1 failed (redis://a:6379 is a replica of x:1)"), "{text}");
}

#[test]
fn a_loss_says_what_the_nodes_have() {
    let lost = |answers: &[_]| explain(ErrorKind::LeaseLost, answers, 0);
    let other = || theirs(Frees::Unknown);
    let end = "; work since its end may overlap another holder's";
    let begin = "the lease on 'r' is lost";
    for (answers, reason) in [
        (vec![], ""),
        (vec![other(), other(), ours(1)], ": on 2 of 3 nodes another holds it"),
        (vec![absent(), absent(), ours(1)], ": 2 of 3 nodes have no key of it"),
        (
            vec![other(), absent(), ours(1)],
            ": on 1 of 3 nodes another holds it, 1 have no key of it",
        ),
        (
            vec![ours(1), fault(FaultKind::Broken), absent()],
            ": no quorum of 3 nodes kept it, 1 granted, 1 without a key of it, 1 failed \
             (redis://b:6379: as the test says)",
        ),
    ] {
        let told = if answers.is_empty() { explain_without_votes() } else { lost(&answers) };
        assert_eq!(told, format!("{begin}{reason}{end}"));
    }
}

#[test]
fn every_kind_of_error_names_the_resource() {
    for kind in ErrorKind::ALL {
        let text = explain(kind, &[], 0);
        assert!(text.contains("'r'"), "{kind}: {text}");
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
    }
}

#[test]
fn codes_are_distinct_and_in_the_one_spelling() {
    let errors = ErrorKind::ALL.map(ErrorKind::code);
    let faults = FaultKind::ALL.map(FaultKind::code);
    for codes in [&errors[..], &faults[..]] {
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
        let is_code = |code: &&str| code.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        assert!(codes.iter().all(is_code), "{codes:?}");
    }
    assert_eq!(ErrorKind::LeaseLost.to_string(), "LEASE_LOST");
}

#[test]
fn outcomes_votes_and_losses_have_names() {
    let names = ReleaseOutcome::ALL.map(ReleaseOutcome::name);
    assert_eq!(names, ["released", "expired", "taken", "unknown"]);
    let votes = [Vote::Missing, Vote::Granted, Vote::Refused, Vote::Failed];
    assert_eq!(votes.map(Vote::name), ["missing", "granted", "refused", "failed"]);
    let reasons = [LossReason::Expired, LossReason::Gone, LossReason::HeldTooLong];
    assert_eq!(reasons.map(LossReason::describe).iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn a_name_does_not_change_how_its_line_is_shown() {
    let names = Resources::new(["a\u{202e}", "\u{1b}é"]).expect("two names");
    assert_eq!(names.to_string(), r"'a\u{202e}', '\u{1b}é'");
}

#[test]
fn a_fault_of_several_nodes_is_told_once() {
    let [lost, twice] = ["the connection was lost", "redis://b:6379 and redis://c:6379 are one"]
        .map(|words| Fault::new(FaultKind::Other, words));
    let [a, b, c] = NODES;
    assert_eq!(Fault::list([]), "");
    assert_eq!(Fault::list([(a, &lost), (b, &lost)]), format!("{a}, {b}: {lost}"));
    let all = [(a, &lost), (b, &twice), (c, &twice)];
    assert_eq!(Fault::list(all), format!("{a}: {lost}; {twice}"));
}

#[test]
fn permanent_faults_are_not_those_that_may_have_acted() {
    for kind in FaultKind::ALL {
        assert!(!(kind.is_permanent() && kind.may_have_acted()), "{kind:?}");
    }
    let mended_by_time: Vec<_> = FaultKind::ALL
        .into_iter()
        .filter(|kind| !kind.is_permanent())
        .map(FaultKind::code)
        .collect();
    let wanted = [
        "NOT_SENT",
        "LATE",
        "TIMED_OUT",
        "BROKEN",
        "UNWRITABLE",
        "BUSY",
        "GARBLED",
        "QUARANTINED",
        "TOO_MANY_CLIENTS",
        "OTHER",
    ];
    assert_eq!(mended_by_time, wanted);
}

#[test]
fn messages_use_words_and_not_names_of_the_code() {
    let (node, other, time) = (NodeId(0), NodeId(1), Duration::from_secs(90));
    let notices = [
        Notice::Quarantined(node, QuarantineReason::Forgot, time),
        Notice::LongWait(node, time),
        Notice::LongLock(time),
        Notice::ClockSetBack(node, time),
        Notice::Paused(time),
        Notice::MayEvict(node, "allkeys-lru".into()),
        Notice::NotIndependent(Dependence::SameServer(node, other)),
        Notice::NotIndependent(Dependence::ReplicaOf(node, other)),
        Notice::NotIndependent(Dependence::Replica(node, "10.0.0.1:6379".into())),
        Notice::NotIndependent(Dependence::OneCluster(node, other)),
        Notice::NodeDown(node, "it is gone".into()),
        Notice::NodeUp(node, time),
        Notice::NoPush(node, "SUBSCRIBE is not permitted".into()),
    ];
    let reasons = [LossReason::Expired, LossReason::Gone, LossReason::HeldTooLong];
    let told = notices.iter().map(|notice| notice.explain(&NODES));
    let told = told.chain(reasons.map(|reason| reason.describe().to_owned()));
    for sentence in told {
        let words = sentence.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.contains('_')) {
            let is_option = Policy::options().iter().any(|option| option.name == word);
            assert!(is_option, "{word}: {sentence}");
        }
    }
}
