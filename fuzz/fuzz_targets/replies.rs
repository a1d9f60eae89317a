//! Answers the first lock command of a client with arbitrary bytes, or only after a granted lock
//! (the first byte decides). A panic of any thread ends the run, and so does a call that does not
//! end.

#![cfg_attr(feature = "libfuzzer", no_main)]

#[allow(dead_code, unreachable_pub)]
#[path = "../../core/client/tests/support/hostile_server.rs"]
mod hostile_server;

use std::time::Duration;

use hostile_server::{Attack, HostileServer, Strikes};
use quorlock::Redlock;

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|input: &[u8]| target(input));

#[cfg(not(feature = "libfuzzer"))]
fn main() {
    quorlock_fuzz::replay(target);
}

fn target(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (strikes, bytes) = match bytes {
        [first, rest @ ..] if first % 2 == 1 => (Strikes::AfterAGrant, rest),
        [] | [_, ..] => (Strikes::AfterLogin, bytes),
    };
    let hostile = HostileServer::new(strikes, Attack::SaysAndLeaves(bytes.to_vec()));
    let locks = Redlock::builder().nodes([hostile.url()]).build().unwrap();
    runtime.block_on(async {
        hostile_server::gain_trust(strikes, &locks).await;
        let lock = locks.lock("r").ttl(Duration::from_millis(500)).try_once();
        // It may even be a proper grant.
        let call = tokio::time::timeout(Duration::from_secs(20), lock.acquire());
        let lease = call.await.expect("the call ends");
        drop(lease);
    });
    locks.close();
}
