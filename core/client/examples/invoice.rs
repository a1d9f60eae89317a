//! Locks one invoice over the nodes named on the command line, or over three in this process.
//!
//! `cargo run --example invoice -- redis://localhost:6379 redis://localhost:6380 redis://localhost:6381`

use std::time::Duration;

use quorlock::{LockError, Redlock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let mut nodes: Vec<String> = std::env::args().skip(1).collect();
    if nodes.is_empty() {
        nodes = ["a", "b", "c"].map(|name| format!("memory://{name}")).into();
    }
    let locks = Redlock::builder().nodes(nodes).build()?;
    let lock = locks.lock("invoice:42").ttl(Duration::from_secs(5)).auto_extend(true);
    let lease = lock.timeout(Duration::from_secs(10)).acquire().await?;
    println!("held for {:.1?} more, fencing token {:?}", lease.validity(), lease.fencing_token());
    tokio::select! {
        () = pay_the_invoice(lease.fencing_token()) => {}
        error = lease.lost() => return Err(error),
    }
    println!("{}", lease.release().await?.name());
    Ok(())
}

/// The work; whatever stores its result should refuse a token below the highest it has seen.
async fn pay_the_invoice(_fencing_token: Option<u64>) {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
