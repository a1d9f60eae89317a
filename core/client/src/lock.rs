//! A lock that is about to be acquired. Owns the settings of one acquisition; holds no lease.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Claim, ConfigError, HolderId, Policy, PolicyBuilder, Resources, WaitMode};

use crate::acquiring::Call;
use crate::clock;
use crate::error::LockError;
use crate::lease::Lease;
use crate::lease_guard::LeaseGuard;
use crate::manager::{Manager, Redlock};

/// A lock on one or several resources, and how to acquire it.
///
/// Made by [`Redlock::lock`](crate::Redlock::lock). It can be acquired again and again; what is won
/// belongs to the [`LeaseGuard`] of that acquisition, never to this object.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    manager: Arc<Manager>,
    resources: Result<Resources, ConfigError>,
    policy: PolicyBuilder,
}

impl Redlock {
    /// A lock on the resource `name`, with the manager's policy until told otherwise.
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_all([name])
    }

    /// A lock on several resources: all or nothing.
    pub fn lock_all<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Lock {
        let (manager, policy) = (Arc::clone(&self.manager), self.manager.policy.to_builder());
        Lock { manager, resources: Resources::new(names), policy }
    }

    /// Takes over a lease by the token that its holder handed over (see [`Lease::token`]).
    ///
    /// Its validity is zero until [`Lease::extend`] or [`Lease::check`] has proved it. The one who handed it
    /// over must have stopped working: it goes by its own validity, also after a release here.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a name or the token is not valid.
    pub fn lease<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
        token: &str,
    ) -> Result<Lease, LockError> {
        let claim = Claim { resources: Resources::new(names)?, holder: HolderId::adopt(token)? };
        Ok(Lease::adopt(&self.manager, Arc::new(claim), self.manager.share(self.manager.policy)))
    }
}

impl Lock {
    /// How long the nodes keep the lock unless it is extended. Default 10 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|policy| policy.ttl(ttl))
    }

    /// How long to wait for it, all in all. Default: until it is held.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|policy| policy.timeout(Some(timeout)))
    }

    /// Exactly one round: fail at once if it is held by another.
    pub fn try_once(self) -> Self {
        self.set(PolicyBuilder::try_once)
    }

    /// Renews the lease until it is released. Default off.
    pub fn auto_extend(self, on: bool) -> Self {
        self.set(|policy| policy.auto_extend(on))
    }

    /// For how long, at most, the lease is renewed. Default 24 hours.
    pub fn max_hold(self, limit: Duration) -> Self {
        self.set(|policy| policy.max_hold(limit))
    }

    /// How much longer than the ttl the nodes keep a lock that is lost instead of released. Default 0; see
    /// [`PolicyBuilder::lock_delay`](crate::PolicyBuilder::lock_delay).
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.set(|policy| policy.lock_delay(delay))
    }

    /// How long the lock is kept from others, at least, however soon it is released. Default 0; see
    /// [`PolicyBuilder::min_hold`](crate::PolicyBuilder::min_hold).
    pub fn min_hold(self, least: Duration) -> Self {
        self.set(|policy| policy.min_hold(least))
    }

    /// How a caller that waits learns that the lock is free. Default [`WaitMode::Push`]; see
    /// [`PolicyBuilder::wait`](crate::PolicyBuilder::wait).
    pub fn wait(self, mode: WaitMode) -> Self {
        self.set(|policy| policy.wait(mode))
    }

    /// Callers get the lock in the order in which they came. Default off; see
    /// [`PolicyBuilder::fair`](crate::PolicyBuilder::fair).
    pub fn fair(self, on: bool) -> Self {
        self.set(|policy| policy.fair(on))
    }

    /// Changes any setting of the policy, save those of the guards, which are the manager's.
    pub fn set(mut self, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Self {
        self.policy = change(self.policy);
        self
    }

    /// Acquires the lock.
    ///
    /// On a task of the engine ([`Engine::spawn`](crate::Engine::spawn)) or within
    /// [`Engine::block_on`](crate::Engine::block_on) this runs where it is; elsewhere the engine's thread does the
    /// work. The timeout counts from this call, not from the first poll; if the engine begins late, 150 ms are left to
    /// try, or the whole of a shorter timeout. Dropping the future withdraws: the nodes are asked at once to delete
    /// its keys. A node that answers has none a moment later (about a round trip;
    /// [`Engine::drain`](crate::Engine::drain) waits for it), and elsewhere the ttl ends them.
    ///
    /// # Errors
    /// [`NotAcquired`](crate::ErrorKind::NotAcquired) or
    /// [`AcquireTimedOut`](crate::ErrorKind::AcquireTimedOut) if another holds it,
    /// [`QuorumUnreachable`](crate::ErrorKind::QuorumUnreachable) if too many nodes are broken,
    /// [`Config`](crate::ErrorKind::Config) if a setting is wrong,
    /// [`Closed`](crate::ErrorKind::Closed) after the manager was closed.
    pub fn acquire(&self) -> impl Future<Output = Result<LeaseGuard, LockError>> + Send + use<> {
        let called = clock::now();
        let checked = self.check();
        let call =
            checked.map(|(resources, policy)| Call::new(&self.manager, resources, policy, called));
        // Borrowed, since the future would have room for a call twice if it were moved.
        async move {
            match &call {
                #[cfg(feature = "tracing")]
                Ok(call) => call.run_traced(&tracing::Span::current()).await,
                #[cfg(not(feature = "tracing"))]
                Ok(call) => call.run_anywhere().await,
                Err(error) => Err(error.clone()),
            }
        }
    }

    /// Takes over a lease on these resources by the token that its holder handed over, with the
    /// settings of this lock (see [`Redlock::lease`](crate::Redlock::lease)).
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if a name, a setting or the token is not valid.
    pub fn lease(&self, token: &str) -> Result<Lease, LockError> {
        let (resources, policy) = self.check()?;
        let claim = Claim { resources, holder: HolderId::adopt(token)? };
        Ok(Lease::adopt(&self.manager, Arc::new(claim), self.manager.share(policy)))
    }

    /// The settings as they would be used.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if a name or a setting is wrong.
    pub fn check(&self) -> Result<(Resources, Policy), LockError> {
        let policy = self.policy.clone().build()?;
        policy.check_guards(&self.manager.policy)?;
        let resources = self.resources.clone()?;
        policy.check_resources(&resources)?;
        Ok((resources, policy))
    }
}
