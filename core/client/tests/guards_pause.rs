//! A client that stood still while its clock stood still with it: all nodes are ahead at once. In a
//! program of its own, as the lease clock is the process's.

mod support;

use std::time::{Duration, Instant};

use quorlock::{ErrorKind, Policy, Redlock};
use support::run;
use support::server::Server;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(100);
const LOST: Duration = Duration::from_secs(60);

#[cfg(target_os = "linux")]
#[test]
fn leases_end_sooner_by_the_time_that_was_lost() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::with_clock()).collect();
        let policy = Policy::builder().ttl(TTL).build().unwrap();
        let urls = servers.iter().map(Server::url);
        let locks = Redlock::builder().nodes(urls).policy(policy).build().unwrap();
        let long = locks.lock("long").acquire().await.unwrap();
        let short = locks.lock("short").ttl(LOST / 2).acquire().await.unwrap();
        assert!(long.validity() + LOST > TTL);
        for server in &servers {
            server.set_clock(60);
        }
        // The next grant tells; nobody's votes are held back for what the client has missed. That time
        // is time for a caller's patience, too.
        let begun = Instant::now();
        let other = locks.lock("other").timeout(2 * LOST).acquire().await;
        other.expect("the nodes are none the worse for it").release().await.unwrap();
        assert!(long.validity() + LOST <= TTL, "{:?}", long.validity());
        assert!(long.is_valid());
        let lost = timeout(LOST / 4, short.lost()).await.expect("told at once");
        assert_eq!(lost.kind(), ErrorKind::LeaseLost);
        assert!(begun.elapsed() < LOST / 4);
    });
}
