//! Tests settings at the edges of their ranges with arbitrary answers of nodes: no machine panics,
//! sends without end, or trusts a lease for longer than its keys are kept.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{
    Acquire, Action, Answer, Extend, Extension, Fault, FaultKind, FencingToken, Frees, Hold,
    Inspect, Machine, Moment, NodeId, Policy, Reply, Ticket, Withdraw, Withdrawal,
};

use crate::support::{Harness, claim, ours, policy, quorum, resources};

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// A node answers one of the commands that were sent, or one that never was.
    Reply {
        node: u8,
        ticket: Option<usize>,
        answer: Result<Answer, Fault>,
        repeated: bool,
    },
    /// The machine is woken when it asked for it.
    Wake,
    /// It is woken at another time.
    Pass(Duration),
    Cancel,
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(Duration::MAX),
        (0..5_000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_secs),
    ]
}

fn token() -> impl Strategy<Value = FencingToken> {
    prop_oneof![0..3_u64, 990..1010_u64, any::<u64>()].prop_map(FencingToken)
}

fn answer() -> impl Strategy<Value = Result<Answer, Fault>> {
    let frees = prop_oneof![Just(Frees::Never), Just(Frees::Unknown), time().prop_map(Frees::In)];
    prop_oneof![
        4 => proptest::option::of(token())
            .prop_map(|token| Ok(Answer::Ours { token, remaining: None })),
        1 => time().prop_map(|left| Ok(Answer::Ours { token: None, remaining: Some(left) })),
        1 => Just(Ok(Answer::Absent)),
        1 => (proptest::option::of(token()), frees)
            .prop_map(|(floor, frees)| Ok(Answer::Theirs { floor, frees })),
        1 => prop::sample::select(FaultKind::ALL.to_vec())
            .prop_map(|kind| Err(Fault::new(kind, "as the test says"))),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..8_u8, proptest::option::weighted(0.9, 0..64_usize), answer(), any::<bool>())
            .prop_map(|(node, ticket, answer, repeated)| Event::Reply {
                node, ticket, answer, repeated
            }),
        4 => Just(Event::Wake),
        1 => time().prop_map(Event::Pass),
        1 => Just(Event::Cancel),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let limits =
        (proptest::option::of(time()), proptest::option::of(any::<u32>()), any::<[bool; 2]>());
    ((time(), 0.0..1.0_f64, time(), time()), (time(), time(), time(), time()), limits)
        .prop_filter_map(
            "refused",
            |(
                (ttl, drift, node, delay),
                (jitter, patience, retention, hold),
                (timeout, limit, on),
            )| {
                let builder = Policy::builder()
                    .ttl(ttl)
                    .drift_factor(drift)
                    .node_timeout(node)
                    .retry_delay(delay)
                    .retry_jitter(jitter)
                    .unreachable_timeout(patience)
                    .fence_retention(retention)
                    .max_hold(hold)
                    .timeout(timeout)
                    .retry_limit(limit)
                    .fencing(on[0])
                    .auto_extend(on[1]);
                builder.build().ok()
            },
        )
}

/// Plays the events; what was sent stays within what a round needs for each of them.
fn harness<M: Machine>(machine: M, nodes: usize, events: &[Event]) -> Harness<M> {
    let mut harness = Harness::start(machine);
    for event in events {
        if harness.done.is_some() {
            break;
        }
        let before = harness.sent.len();
        match event {
            Event::Reply { node, ticket, answer, repeated } => {
                let known =
                    ticket.and_then(|place| harness.sent.get(place % harness.sent.len().max(1)));
                let ticket = known.map_or(Ticket(u32::MAX), |(_, command)| command.ticket);
                let reply = Reply { ticket, answer: answer.clone(), repeated: *repeated };
                harness.reply(*node, reply);
            }
            Event::Wake => harness.wake(),
            Event::Pass(time) => {
                harness.env.now = harness.env.now + *time;
                harness.machine.handle_timeout(&mut harness.env);
                harness.settle();
            }
            Event::Cancel => harness.cancel(),
        }
        // The next round, what a late voter is given, and each lost round that is still taken back.
        assert!(
            harness.sent.len() - before <= 50 * nodes,
            "{} at once",
            harness.sent.len() - before
        );
        assert!(harness.sent[before..].iter().all(|(node, _)| node.index() < nodes));
        harness.env.drawn %= 200;
    }
    harness
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_acquisition_survives(
        policy in any_policy(),
        nodes in 1..8_usize,
        known in token(),
        events in proptest::collection::vec(event(), 0..32),
    ) {
        let machine = Acquire::new(Moment::default(), resources(), policy, quorum(nodes), known);
        let harness = harness(machine, nodes, &events);
        let (now, sent) = (harness.env.now, harness.sent.clone());
        if let Some(Ok(won)) = harness.done.map(|outcome| outcome.result) {
            prop_assert!(won.lease.until() > now, "it was over before it began");
            prop_assert!(won.lease.until() <= now + policy.ttl().as_duration());
            let claimed = won.lease.claim();
            prop_assert!(sent.iter().any(|(_, command)| command.claim == *claimed));
        }
    }

    #[test]
    fn a_lease_and_all_that_is_done_to_it_survive(
        change in any_policy(),
        nodes in 1..8_usize,
        events in proptest::collection::vec(event(), 0..32),
    ) {
        let won = Acquire::new(
            Moment::default(), resources(), policy(|it| it), quorum(nodes), FencingToken::default(),
        );
        let mut won = Harness::start(won);
        for node in 0..u8::try_from(nodes).unwrap() {
            if won.done.is_none() {
                won.answer(node, "grant", ours(1_000));
            }
        }
        let lease = won.outcome().result.unwrap().lease;
        let now = Moment::default();
        harness(Hold::new(now, lease.clone(), change, now, quorum(nodes)), nodes, &events);
        let extension = Extension {
            claim: lease.claim().clone(),
            fencing_token: lease.fencing_token(),
            until: lease.until(),
            patience: change.unreachable_timeout(),
            first_ticket: 0,
        };
        let extended = harness(Extend::new(now, extension, change, quorum(nodes)), nodes, &events);
        let latest = extended.env.now + change.ttl().as_duration();
        if let Some(Ok(lease)) = extended.done.map(|outcome| outcome.result) {
            prop_assert!(lease.until() <= latest);
        }
    }

    #[test]
    fn a_withdrawal_and_a_look_survive(
        change in any_policy(),
        nodes in 1..8_usize,
        forgotten in time(),
        events in proptest::collection::vec(event(), 0..32),
    ) {
        let now = Moment::default();
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: claim("me"),
            quorum: quorum(nodes),
            keys_expire_by: Moment::from_epoch(forgotten),
            unsent: Vec::new(),
            node_timeout: change.node_timeout(),
        };
        let taken_back = harness(Withdraw::new(now, withdrawal), nodes, &events);
        let is_revoke = |action: &Action| *action == Action::REVOKE;
        prop_assert!(taken_back.sent.iter().all(|(_, command)| is_revoke(&command.action)));
        harness(Inspect::new(now, &claim("me"), change, quorum(nodes)), nodes, &events);
    }
}

#[test]
fn a_node_that_does_not_exist_is_not_heard() {
    let machine = Acquire::new(
        Moment::default(),
        resources(),
        policy(|it| it),
        quorum(3),
        FencingToken::default(),
    );
    let mut harness = Harness::start(machine);
    let ticket = harness.last(0, "grant").ticket;
    for node in [3, 7, u8::MAX] {
        harness.machine.handle_reply(
            &mut harness.env,
            NodeId(node),
            Reply { ticket, answer: ours(1_000), repeated: false },
        );
        harness.settle();
    }
    assert!(harness.done.is_none());
}
