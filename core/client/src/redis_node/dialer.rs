//! Makes links to a node: the first, the replacements, and a second one beside a silent one. Owns
//! the delays between tries; keeps no connection.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use quorlock_protocol::Fault;
use tokio::select;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::connection::{Connection, Share};
use super::connections::{Connections, GRACE, Reached, Wish};
use super::faults::no_answer;
use super::link::Link;
use super::log_in::{ask, inquire};
use super::session::{ClientId, Facts, GuardProbe, Now, replica};
use super::settings::NodeSettings;
use crate::address::Address;
use crate::clock::{self, ToldClock};
use crate::guards::GuardedNode;

/// Makes links to the node.
#[derive(Clone)]
pub(super) struct Dialer {
    address: Arc<Address>,
    settings: NodeSettings,
    connections: Connections,
    guarded_node: Option<GuardedNode>,
    /// Where links write the node's clock.
    clock: Arc<ToldClock>,
}

impl Dialer {
    pub(super) fn new(
        address: Arc<Address>,
        settings: NodeSettings,
        connections: Connections,
        guarded_node: Option<GuardedNode>,
        clock: Arc<ToldClock>,
    ) -> Self {
        Self { address, settings, connections, guarded_node, clock }
    }

    /// The node as the guards know it; `None` for a node that belongs to no manager.
    pub(super) fn guarded_node(&self) -> Option<&GuardedNode> {
        self.guarded_node.as_ref()
    }

    pub(super) fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// A link that is ready for commands, within the time for connecting; it ends `abandoned` on
    /// the server. The guards are told of a failure.
    pub(super) async fn dial(&self, abandoned: Option<&ClientId>) -> Result<Link, Fault> {
        let began = clock::now();
        let result = self.try_to_dial(abandoned, None).await;
        if let (Err(_), Some(guarded_node)) = (&result, &self.guarded_node) {
            guarded_node.handle_failed_try(began);
        }
        result
    }

    /// The same; if possible it uses another connection than `silent`.
    async fn try_to_dial(
        &self,
        abandoned: Option<&ClientId>,
        silent: Option<&Arc<Connection>>,
    ) -> Result<Link, Fault> {
        let limit = self.settings.connect_timeout;
        let patience = self.settings.hang_after.min(limit / 4);
        let (address, since) = (&self.address, Instant::now());
        let wish = Wish { address, since, patience, silent, abandoned };
        // Boxed: the task needs the memory only while it connects.
        let dialing = self.find_way(wish).boxed();
        select! {
            biased;
            result = dialing => result,
            () = running_time(limit) => Err(no_answer(&self.address, limit)),
        }
    }

    async fn find_way(&self, wish: Wish<'_>) -> Result<Link, Fault> {
        let mut reached = self.connections.reach(&wish).await?;
        loop {
            let Reached { share, told, is_new } = reached;
            let told = match told {
                Some(told) => Ok(told),
                None => match self.ask(&share, &wish).await {
                    Ok(told) => told,
                    Err(other) => {
                        reached = other?;
                        continue;
                    }
                },
            };
            let connection = Arc::clone(share.connection());
            match self.begin(share, told).await {
                // A connection that already existed may have ended unnoticed.
                Err(_) if connection.has_ended() && !is_new => {
                    reached = self.connections.reach(&wish).await?;
                }
                result => return result,
            }
        }
    }

    /// Asks over an existing connection which server it is. If that is silent, another connection
    /// is made, and returned as the error if it is ready first.
    async fn ask(
        &self,
        share: &Share,
        wish: &Wish<'_>,
    ) -> Result<Result<Facts, Fault>, Result<Reached, Fault>> {
        let connection = share.connection();
        let wish_other = Wish { silent: Some(connection), ..*wish };
        let other = async {
            loop {
                let since = Instant::now();
                sleep(self.settings.hang_after).await;
                if connection.was_heard_after(since) {
                    continue;
                }
                let other = self.connections.reach(&wish_other).await;
                let is_same = |it: &Reached| Arc::ptr_eq(it.share.connection(), connection);
                if !other.as_ref().is_ok_and(is_same) {
                    return other;
                }
            }
        };
        let asking = async {
            match wish.abandoned {
                Some(abandoned) => ask(share, Some(abandoned)).await,
                None => inquire(connection).await,
            }
        };
        select! {
            biased;
            told = asking => Ok(told),
            other = other => Err(other),
        }
    }

    /// Creates a link over a connection whose server has `told` who it is.
    async fn begin(&self, share: Share, told: Result<Facts, Fault>) -> Result<Link, Fault> {
        let facts = told.map(|facts| facts.at(&self.address));
        let facts = facts.and_then(|facts| self.introduce(&facts).map(|()| facts));
        // At the next try another server may be at the address.
        let facts = facts.inspect_err(|_| share.dismiss())?;
        let guard_probe = GuardProbe::new(self.guarded_node.clone(), Arc::clone(&self.clock));
        let mut link = Link::new(share, facts, self.address.key_prefix(), guard_probe, Now::read);
        link.examine().await?;
        Ok(link)
    }

    /// Tells the guards who the server is, and refuses a replica.
    fn introduce(&self, facts: &Facts) -> Result<(), Fault> {
        let identity = facts.identity();
        let told = self
            .guarded_node
            .as_ref()
            .and_then(|guarded_node| guarded_node.handle_identity(identity));
        match &identity.follows {
            None => Ok(()),
            Some(master) => Err(told.unwrap_or_else(|| replica(Some(master)))),
        }
    }

    /// A link over another connection that answers while `silent` does not.
    ///
    /// A server that was only stopped serves both connections when it continues, in either order. So the new one is asked
    /// once more after a pause: by then the server has worked through its buffers, and the caller, which polls the old
    /// link first, has dropped this future. Otherwise the old connection is dead, and that last question ends it on the
    /// server too. (A connection that answers other users is not dead; this one will be answered after them.)
    pub(super) async fn supersede(self, silent: Arc<Connection>) -> Link {
        let (since, mut backoff) = (Instant::now(), Backoff::new(&self.settings));
        loop {
            sleep(backoff.next()).await;
            let Ok(mut link) = self.try_to_dial(None, Some(&silent)).await else {
                continue;
            };
            link.wait(GRACE).await;
            if silent.was_heard_after(since) || Arc::ptr_eq(link.connection(), &silent) {
                continue;
            }
            let question = silent.client().map_or_else(|| redis::cmd("PING"), ClientId::kill);
            if let Ok(Ok(())) = timeout(self.settings.connect_timeout, link.ask(&question)).await {
                return link;
            }
        }
    }
}

/// Waits for `time`, of which a pause of the process counts only a small part: whatever its length, it says nothing
/// about a node.
async fn running_time(time: Duration) {
    for _ in 0..PARTS {
        sleep(time / PARTS).await;
    }
}

const PARTS: u32 = 20;
