//! Tests servers that are broken or hostile: the client gets an error in time, and never panics,
//! hangs or fills its memory.

mod support;

use std::fs;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use proptest::prelude::*;
use quorlock::{ErrorKind, Redlock, RestartGuard};
use quorlock_protocol::Policy;
use support::hostile_server::{Attack, GIGABYTE, HostileServer, Strikes, gain_trust};
use support::run;

/// No call takes longer, whatever the servers do: the time for connecting (a second) and the caller's
/// own timeout, with room for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// The caller's timeout.
const PATIENCE: Duration = Duration::from_millis(300);

#[test]
fn replies_of_the_wrong_shape_are_told() {
    let wrong: [&[u8]; 30] = [
        b"+OK\r\n",
        b"+QUEUED\r\n",
        b":1\r\n",
        b":99999999999999999999999\r\n",
        b":one\r\n",
        b"$-1\r\n",
        b"$-2\r\n",
        b"$0\r\n\r\n",
        b"$3\r\nabcde",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1\r\n:1\r\n",
        b"*3\r\n:1\r\n:0\r\n:0\r\n",
        b"*4\r\n:1\r\n:-1\r\n:-2\r\n:0\r\n",
        b"*4\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        b"*4\r\n:9223372036854775807\r\n:0\r\n:0\r\n:0\r\n",
        b"*4\r\n$1\r\n1\r\n$1\r\n0\r\n$2\r\n-2\r\n$1\r\n0\r\n",
        b"*4\r\n:1\r\n$-1\r\n:0\r\n:0\r\n",
        b"*4\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"%-1\r\n",
        b"~4\r\n:1\r\n:0\r\n:-2\r\n:0\r\n",
        b"|1\r\n+a\r\n+b\r\n*4\r\n:1\r\n:0\r\n:-2\r\n:0\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",nan\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"=15\r\ntxt:Some string\r\n",
        b"!-1\r\n",
        b">2\r\n+invalidate\r\n:1\r\n",
    ];
    // Some leave open whether there is more to come: those are waited for, but not for ever.
    are_told_in_time(wrong.map(|bytes| Attack::AlwaysSays(bytes.to_vec())));
}

#[test]
fn promises_of_endless_replies_are_not_believed() {
    let mut nested = b"*1\r\n".repeat(10_000);
    nested.extend(b":1\r\n");
    let promises = [
        b"$9999999999\r\nx".to_vec(),
        b"$9223372036854775807\r\nx".to_vec(),
        b"*9999999999\r\n:1\r\n".to_vec(),
        b"*9223372036854775807\r\n".to_vec(),
        b"%9223372036854775807\r\n".to_vec(),
        b"~9999999999\r\n:1\r\n".to_vec(),
        b">9999999999\r\n+message\r\n".to_vec(),
        b"|9999999999\r\n+a\r\n".to_vec(),
        b"=9999999999\r\ntxt:".to_vec(),
        b"*2\r\n*4000000000\r\n*4000000000\r\n:1\r\n".to_vec(),
        nested,
    ];
    are_told_in_time(promises.map(Attack::Says));
}

#[test]
fn connections_that_end_or_drip_are_told() {
    are_told_in_time([
        Attack::SaysAndLeaves(Vec::new()),
        Attack::SaysAndLeaves(b"*4\r\n:1\r\n:0".to_vec()),
        Attack::SaysAndLeaves(b"$40\r\nabc".to_vec()),
        Attack::Says(Vec::new()),
        Attack::Drips(b"*4\r\n:1\r\n:7\r\n:-2\r\n:0\r\n".to_vec(), Duration::from_secs(1)),
        Attack::AlwaysSays(b"-ERR no\r\n".to_vec()),
        Attack::AlwaysSays(b"-\r\n".to_vec()),
        Attack::AlwaysSays(b"-NOSCRIPT always\r\n".to_vec()),
        Attack::AlwaysSays(b"-LOADING for ever\r\n".to_vec()),
        Attack::AlwaysSays(b"\0\xff\xfe\r\n".to_vec()),
        Attack::AlwaysSays(b"\r\n\r\n".to_vec()),
    ]);
}

/// What is sent without end is not kept: neither in memory, nor does it go on for long.
#[test]
fn a_gigabyte_that_nobody_asked_for_does_not_fill_the_memory() {
    let floods: [(&[u8], &[u8]); 8] = [
        (b"$9999999999\r\n", b"x"),
        (b"+", b"x"),
        (b"-ERR ", b"x"),
        (b"*9999999999\r\n", b":1\r\n"),
        (b"*9999999999\r\n", b"_\r\n"),
        (b"", b">2\r\n+message\r\n+x\r\n"),
        (b"", b"*4\r\n:9\r\n:0\r\n:-2\r\n:0\r\n"),
        (b"", b"\xf0\x9f\x92\xa3\r\n"),
    ];
    let before = resident();
    for (first, rest) in floods {
        let attack = Attack::Floods(first.to_vec(), rest.to_vec());
        for strikes in STRIKES {
            let said = run(fails_in_time(strikes, attack.clone()));
            // What lies in the system's buffers was said, and not taken.
            assert!(said < GIGABYTE / 8, "{said} bytes of {attack:?}");
            // 16 MiB of a reply are taken on each of three connections, and twice that while it grows;
            // the rest is for the tests beside this one.
            let grown = resident().saturating_sub(before);
            assert!(grown < GIGABYTE / 4, "{grown} bytes more after {attack:?}");
        }
    }
}

#[test]
fn one_such_server_of_three_does_not_matter() {
    let panics_before = panics();
    for attack in [
        Attack::Says(b"$9999999999\r\nx".to_vec()),
        Attack::SaysAndLeaves(Vec::new()),
        Attack::AlwaysSays(b"-ERR no\r\n".to_vec()),
        Attack::AlwaysSays(b"*4\r\n:1\r\n:-1\r\n:0\r\n:0\r\n".to_vec()),
        Attack::Floods(b"$9999999999\r\n".to_vec(), b"x".to_vec()),
    ] {
        for strikes in STRIKES {
            run(async {
                let hostile = HostileServer::new(strikes, attack.clone());
                let honest = ["memory://hostile-a", "memory://hostile-b"].map(str::to_owned);
                let nodes = honest.into_iter().chain([hostile.url()]);
                let locks = Redlock::builder().nodes(nodes).build().unwrap();
                for _ in 0..3 {
                    let lease = locks.lock("r").acquire().await.unwrap();
                    lease.extend(None).await.unwrap();
                    lease.release().await.unwrap();
                }
                locks.close();
            });
        }
    }
    assert_eq!(panics(), panics_before);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any mixture of pieces of the protocol, whole or cut.
    #[test]
    fn whatever_a_server_replies_is_an_answer_or_a_fault(
        pieces in proptest::collection::vec(piece(), 0..12),
        cut in 0..64_usize,
        strikes in prop::sample::select(vec![Strikes::AfterLogin, Strikes::AfterAGrant]),
    ) {
        let mut bytes = pieces.concat();
        bytes.truncate(bytes.len().saturating_sub(cut % (bytes.len() + 1)));
        let panics_before = panics();
        let hostile = HostileServer::new(strikes, Attack::SaysAndLeaves(bytes));
        let took = run(async {
            let locks = Redlock::builder().nodes([hostile.url()]).build().unwrap();
            gain_trust(strikes, &locks).await;
            let start = Instant::now();
            // It may even be a proper grant.
            let _ = locks.lock("r").try_once().acquire().await;
            locks.close();
            start.elapsed()
        });
        prop_assert!(took < LIMIT, "{took:?}");
        prop_assert_eq!(panics(), panics_before);
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(-1), Just(0), 0..12_i64, any::<i64>()];
    let framed = (prop::sample::select(b"+-:$*%~|>_#,(!=".to_vec()), number)
        .prop_map(|(kind, number)| [&[kind][..], number.to_string().as_bytes(), b"\r\n"].concat());
    prop_oneof![
        6 => framed,
        2 => prop::sample::select(vec![
            b"*4\r\n:1\r\n:7\r\n:-2\r\n:0\r\n".to_vec(),
            b"+OK\r\n:1\r\n:0\r\n:1\r\n".to_vec(),
            b"*2\r\n$10\r\n1700000000\r\n$1\r\n7\r\n".to_vec(),
            b"-NOSCRIPT gone\r\n".to_vec(),
            b"-CROSSSLOT keys\r\n".to_vec(),
            b"$2\r\nOK\r\n".to_vec(),
        ]),
        2 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

fn are_told_in_time(attacks: impl IntoIterator<Item = Attack>) {
    let each = attacks
        .into_iter()
        .flat_map(|attack| STRIKES.map(|strikes| fails_in_time(strikes, attack.clone())));
    run(join_all(each));
}

/// A lock over three such servers: an error that says so, in time. Tells how much they could say.
async fn fails_in_time(strikes: Strikes, attack: Attack) -> usize {
    let panics_before = panics();
    let hostile_servers = [(); 3].map(|()| HostileServer::new(strikes, attack.clone()));
    let urls = hostile_servers.iter().map(HostileServer::url);
    let locks = Redlock::builder().nodes(urls).policy(policy(strikes)).build().unwrap();
    gain_trust(strikes, &locks).await;
    // On a busy machine the caller may have given up before any of them was asked: once more, with more time.
    let mut patience = PATIENCE;
    while hostile_servers.iter().all(|hostile| hostile.struck() == 0) {
        let start = Instant::now();
        let lock = locks.lock("r").timeout(patience);
        patience *= 2;
        let error = lock.acquire().await.expect_err("no quorum of hostile servers");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable, "{strikes:?} {attack:?}: {error}");
        let asked = locks.is_locked(["r"]).await;
        assert!(asked.is_err(), "{strikes:?} {attack:?}: {asked:?}");
        assert!(start.elapsed() < LIMIT, "{:?} for {strikes:?} {attack:?}", start.elapsed());
    }
    assert_eq!(panics(), panics_before, "{strikes:?} {attack:?}");
    locks.close();
    hostile_servers.iter().map(HostileServer::most_said).max().unwrap_or(0)
}

fn policy(strikes: Strikes) -> Policy {
    let policy = Policy::builder().timeout(Some(PATIENCE));
    // Who is to be trusted with a lock first knows nothing of guards.
    let is_guarded = strikes != Strikes::AfterAGrant;
    let guard = if is_guarded { RestartGuard::Auto } else { RestartGuard::Off };
    policy.restart_guard(guard).clock_guard(is_guarded).build().unwrap()
}

const STRIKES: [Strikes; 3] = [Strikes::AtOnce, Strikes::AfterLogin, Strikes::AfterAGrant];

/// The panics of the thread that runs the locks, which would be caught there and go unnoticed.
fn panics() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("quorlock")) {
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
            usual(panic);
        }));
    });
    COUNT.load(Ordering::Relaxed)
}

/// How many bytes of memory this process has now.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
