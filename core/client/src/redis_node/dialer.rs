//! Makes connections to a node: the first, the next, and a second beside one that is silent. Owns the
//! delays between tries; keeps no connection.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Fault, FaultKind, Surroundings as _};
use tokio::time::{sleep, timeout};

use super::NodeSettings;
use super::faults;
use super::link::Link;
use super::login::{ClientId, Login, log_in};
use super::lookout::Lookout;
use super::pipe::Pipe;
use super::stream;
use crate::address::Address;
use crate::clock::{self, ToldClock};
use crate::sentry::Sentry;

/// Makes connections to the node.
#[derive(Clone)]
pub(super) struct Dialer {
    address: Arc<Address>,
    settings: NodeSettings,
    sentry: Option<Sentry>,
    /// Where connections tell the node's clock.
    clock: Arc<ToldClock>,
}

impl Dialer {
    pub(super) fn new(
        address: Arc<Address>,
        settings: NodeSettings,
        sentry: Option<Sentry>,
        clock: Arc<ToldClock>,
    ) -> Self {
        Self { address, settings, sentry, clock }
    }

    /// The guards, where there is anything to guard.
    pub(super) fn sentry(&self) -> Option<&Sentry> {
        self.sentry.as_ref()
    }

    pub(super) fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// A connection that is ready for commands, within the time for connecting; it ends `abandoned` on
    /// the server.
    pub(super) async fn dial(&self, abandoned: Option<&ClientId>) -> Result<Link, Fault> {
        let dialing = async {
            let stream = stream::open(&self.address).await?;
            let login = log_in(Pipe::new(stream), &self.address, abandoned).await?;
            self.introduce(&login)?;
            let lookout = Lookout::new(self.sentry.clone(), Arc::clone(&self.clock));
            let mut link = Link::new(login, self.address.key_prefix(), lookout);
            link.examine().await?;
            Ok(link)
        };
        timeout(self.settings.connect_timeout, dialing).await.unwrap_or_else(|_| {
            let millis = self.settings.connect_timeout.as_millis();
            // A server without TLS may wait for the rest of what it takes for a command.
            let hint =
                if self.address.tls().is_some() { ": does it speak TLS on this port?" } else { "" };
            let words = format!("cannot connect: no answer within {millis} ms{hint}");
            Err(Fault::new(FaultKind::NotSent, words))
        })
    }

    /// Has the guards know who the server is, and refuses a replica.
    fn introduce(&self, login: &Login) -> Result<(), Fault> {
        let identity = login.facts.identity();
        let told = self.sentry.as_ref().and_then(|sentry| sentry.handle_identity(identity));
        match &identity.follows {
            None => Ok(()),
            Some(master) => Err(told.unwrap_or_else(|| faults::replica(Some(master)))),
        }
    }

    /// A second connection that answers while the first one, `silent`, does not.
    ///
    /// A server that was merely stopped serves both when it goes on, in either order. So the new one
    /// is asked once more after a pause: by then the server has been through what lay in its buffers,
    /// and the caller, who looks at the old one first, has dropped this future. Otherwise the old one
    /// is dead, and that last question ends it on the server too.
    pub(super) async fn overtake(self, silent: Option<ClientId>) -> Link {
        let mut backoff = Backoff::new(&self.settings);
        loop {
            sleep(backoff.next()).await;
            let Ok(mut link) = self.dial(None).await else {
                continue;
            };
            sleep(GRACE).await;
            let question = silent.as_ref().map_or_else(|| redis::cmd("PING"), ClientId::kill);
            if let Ok(Ok(())) = timeout(self.settings.connect_timeout, link.ask(&question)).await {
                return link;
            }
        }
    }
}

/// Delays that double from the shortest to the longest, each shortened by up to half at random, so that
/// many clients do not come back to a node in step.
pub(super) struct Backoff {
    delay: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &NodeSettings) -> Self {
        Self { delay: settings.backoff_min, longest: settings.backoff_max }
    }

    pub(super) fn next(&mut self) -> Duration {
        let delay = self.delay.min(self.longest);
        self.delay = (self.delay * 2).min(self.longest);
        let random = clock::System.random()[0];
        delay.mul_f64(0.5 + f64::from(random) / 512.0)
    }
}

/// Time for a server that goes on to get through what lies in its buffers.
const GRACE: Duration = Duration::from_millis(20);
