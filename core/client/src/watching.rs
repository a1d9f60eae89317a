//! The methods of a manager for programs that watch it: its figures and its events. Owns nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock;
use crate::manager::Redlock;
use crate::node::Node;
use crate::observe::{Event, Interest, Stats, Subscription};

impl Redlock {
    /// The counters and histograms since this manager was made. Asks no node.
    ///
    /// ```
    /// use quorlock::Redlock;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorlock::LockError> {
    /// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    /// locks.lock("invoice:42").acquire().await?.release().await?;
    /// let stats = locks.stats();
    /// assert_eq!((stats.rounds, stats.held), (1, 0));
    /// assert_eq!(stats.hold_seconds.count, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        let manager = &self.manager;
        let nodes = manager.nodes.iter().zip(manager.addresses.iter()).enumerate();
        let node = |(index, (node, address)): (usize, (&Arc<dyn Node>, &Arc<str>))| {
            manager.telemetry.node_stats(index, (address, &node.state(), offset(&**node)))
        };
        manager.telemetry.stats(nodes.map(node).collect())
    }

    /// Calls `listener` with every event that it is interested in, until the subscription is
    /// dropped.
    ///
    /// It is called on the thread on which the event happens, mostly the engine's, and must not
    /// block.
    pub fn subscribe(
        &self,
        interest: Interest,
        listener: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Subscription {
        Subscription::new(&self.manager.telemetry, interest, Arc::new(listener))
    }
}

/// How far the node's clock is ahead of this machine's wall clock, in seconds.
fn offset(node: &dyn Node) -> Option<f64> {
    let shown = node.server()?.clock_micros(clock::now())?;
    let own = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Duration::from_micros(shown).as_secs_f64() - own.as_secs_f64())
}
