//! The functions that JavaScript calls on a manager of the core. Converts in and calls; decides
//! nothing.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use napi::Either;
use napi::bindgen_prelude::{External, Function};
use napi_derive::napi;
use quorlock::{Builder, ConfigError, Lock, LockError, NodeState, Redlock};

use crate::address::{self, NodeSpec};
use crate::bridge::Bridge;
use crate::errors::Failure;
use crate::lease::LeaseHandle;
use crate::listening::Listening;
use crate::notices::{self, Notice};
use crate::numbers::millis;
use crate::options::{self, Settings};
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::spelling;

/// Locks over N nodes, for one environment.
pub struct Manager {
    locks: Redlock,
    queue: Arc<Queue>,
    /// Tells events, while anyone listens.
    subscription: Mutex<Option<Listening>>,
}

impl Manager {
    pub(crate) const fn locks(&self) -> &Redlock {
        &self.locks
    }

    pub(crate) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Replaces the subscription; the earlier one ends.
    pub(crate) fn set_subscription(&self, subscription: Option<Listening>) {
        let mut slot = self.subscription.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::replace(&mut *slot, subscription);
        drop(slot);
        drop(earlier);
    }

    pub(crate) fn with_subscription<T>(&self, read: impl FnOnce(Option<&Listening>) -> T) -> T {
        read(self.subscription.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }
}

/// The state of one node.
#[napi(object, object_from_js = false)]
pub struct NodeStatus {
    /// Where it is, without a password.
    pub address: String,
    /// `connecting`, `healthy`, `unresponsive`, `quarantined`, `refusing` or `down`.
    pub state: &'static str,
    /// Why it is in this state, where the state alone does not say it.
    pub detail: Option<String>,
    /// While it is quarantined: for how much longer, in milliseconds.
    pub quarantined_for: Option<f64>,
}

/// Makes a manager; nothing is connected yet. `on_notice` is called with notices that a person
/// should know; `owner` is what others are told of it. [`leave_out`] needs `may_leave_out`.
#[napi]
// JavaScript passes a copy, so these parameters are taken by value.
#[allow(clippy::needless_pass_by_value)]
pub fn open(
    bridge: &External<Bridge>,
    nodes: Vec<Either<String, NodeSpec>>,
    settings: Settings,
    on_notice: Function<'_, Notice, ()>,
    owner: Option<BTreeMap<String, String>>,
    may_leave_out: bool,
) -> napi::Result<Either<External<Manager>, Failure>> {
    let mut builder = Redlock::builder().on_notice(notices::listener(&on_notice)?);
    builder = builder.may_leave_out(may_leave_out);
    if let Some(words) = owner {
        builder = builder.owner(words);
    }
    let size = SIZE + nodes.len() * SIZE_OF_NODE;
    Ok(match build(builder, nodes, &settings) {
        Ok(locks) => {
            let (queue, subscription) = (Arc::clone(bridge.queue()), Mutex::default());
            let manager = Manager { locks, queue, subscription };
            Either::A(External::new_with_size_hint(manager, size))
        }
        Err(error) => Either::B(Failure::new(&error)),
    })
}

fn build(
    builder: Builder,
    nodes: Vec<Either<String, NodeSpec>>,
    settings: &Settings,
) -> Result<Redlock, LockError> {
    let mut builder = builder.policy(options::policy(settings)?);
    for node in nodes {
        builder = builder.address(address::read(node)?);
    }
    builder.build()
}

/// The timeout of a caller of [`acquire`], in milliseconds; without an end, how long it goes on where too few nodes can be
/// reached, at least a second. `None` if tries end it instead, also if it tries once, and for settings that it refuses.
#[napi]
#[allow(clippy::needless_pass_by_value)]
pub fn call_patience(
    manager: &External<Manager>,
    duration: f64,
    settings: Option<Settings>,
) -> Option<f64> {
    let builder = manager.locks.policy().to_builder();
    let builder = settings.iter().try_fold(builder, |builder, it| options::apply(it, builder));
    let policy = builder.ok()?.ttl(options::ttl(duration).ok()?).build().ok()?;
    let is_endless = policy.retry_limit().is_none();
    // A client that is asked needs time to answer, as a server does for a try.
    let unreachable = policy.unreachable_timeout().max(TO_TELL);
    let timeout = policy.timeout().or(is_endless.then_some(unreachable));
    timeout.filter(|timeout| !timeout.is_zero()).map(millis)
}

/// Acquires a lock on all of `resources`; ends with a lease. `waited` milliseconds of its timeout have passed already.
#[napi]
// JavaScript passes a copy, so these parameters are taken by value.
#[allow(clippy::needless_pass_by_value)]
pub fn acquire(
    manager: &External<Manager>,
    id: u32,
    resources: Vec<String>,
    duration: f64,
    settings: Option<Settings>,
    waited: f64,
) {
    let waited = Duration::from_secs_f64(waited / 1000.0);
    // The timeout counts from here, not from the end of JavaScript's turn.
    let acquiring = match lock(&manager.locks, &resources, duration, settings.as_ref()) {
        Ok(lock) => lock.set(|policy| policy.waited(waited)).acquire().left_future(),
        Err(error) => ready(Err(error.into())).right_future(),
    };
    manager.queue.run(
        manager.locks.engine(),
        id,
        acquiring.map(|result| match result {
            Ok(guard) => Outcome::Acquired(guard.into()),
            Err(error) => error.into(),
        }),
    );
}

fn lock(
    locks: &Redlock,
    resources: &[String],
    duration: f64,
    settings: Option<&Settings>,
) -> Result<Lock, ConfigError> {
    let (lock, ttl) = (locks.lock_all(resources), options::ttl(duration)?);
    match settings {
        None => Ok(lock.ttl(ttl)),
        Some(settings) => {
            let policy = options::apply(settings, locks.policy().to_builder())?;
            Ok(lock.set(|_| policy.ttl(ttl)))
        }
    }
}

/// Whether any client holds one of `resources`; ends with an answer.
#[napi]
pub fn is_locked(manager: &External<Manager>, id: u32, resources: Vec<String>) {
    let locks = manager.locks.clone();
    manager.queue.run(manager.locks.engine(), id, async move {
        match locks.is_locked(&resources).await {
            Ok(answer) => Outcome::Answer(answer),
            Err(error) => error.into(),
        }
    });
}

/// How many acquisitions wait for `resources` in the nodes' queues; ends with a number.
#[napi]
pub fn waiters(manager: &External<Manager>, id: u32, resources: Vec<String>) {
    let locks = manager.locks.clone();
    manager.queue.run(manager.locks.engine(), id, async move {
        match locks.waiters(&resources).await {
            Ok(count) => Outcome::Count(count),
            Err(error) => error.into(),
        }
    });
}

/// Who holds the resource `name`; ends with what its holder says of itself, or nothing.
#[napi]
pub fn holder(manager: &External<Manager>, id: u32, name: String) {
    let locks = manager.locks.clone();
    manager.queue.run(manager.locks.engine(), id, async move {
        match locks.holder(&name).await {
            Ok(holder) => Outcome::Holder(holder),
            Err(error) => error.into(),
        }
    });
}

/// Takes over the lease that another process handed over.
#[napi]
// JavaScript passes a copy, so these parameters are taken by value.
#[allow(clippy::needless_pass_by_value)]
pub fn adopt(
    manager: &External<Manager>,
    resources: Vec<String>,
    token: String,
) -> Either<External<Arc<LeaseHandle>>, Failure> {
    match manager.locks.lease(&resources, &token) {
        Ok(lease) => Either::A(External::new(LeaseHandle::new(lease, &manager.queue))),
        Err(error) => Either::B(Failure::new(&error)),
    }
}

/// Every node with its state, in the order given.
#[napi]
pub fn nodes(manager: &External<Manager>) -> Vec<NodeStatus> {
    let status =
        |((address, state), push_fault): ((Arc<str>, NodeState), Option<Arc<str>>)| NodeStatus {
            address: address.to_string(),
            state: state.name(),
            detail: state.detail().or(push_fault.as_deref()).map(spelling::in_node),
            quarantined_for: state.quarantine_left().map(millis),
        };
    manager.locks.nodes().into_iter().zip(manager.locks.push_faults()).map(status).collect()
}

/// While `is_left_out`, makes no keys on the node with this number: it has no vote on new locks.
#[napi]
pub fn leave_out(manager: &External<Manager>, node: u32, is_left_out: bool) {
    manager.locks.leave_out(node as usize, is_left_out);
}

/// How long a node may take to answer, whatever the duration of a lock; in milliseconds.
#[napi]
pub fn patience(manager: &External<Manager>) -> f64 {
    let policy = manager.locks.policy();
    // The longest time that is computed from a duration, if there is no setting.
    let longest = policy.to_builder().max_ttl(None).ttl(Duration::from_secs(3600)).build();
    millis(longest.unwrap_or(policy).node_timeout())
}

/// Closes the connections; locks that are still held expire.
#[napi]
pub fn close(manager: &External<Manager>) {
    manager.locks.close();
}

/// Whether `close` was called.
#[napi]
pub fn is_closed(manager: &External<Manager>) -> bool {
    manager.locks.is_closed()
}

/// How long a client object may take to tell its database where a call has no end.
const TO_TELL: Duration = Duration::from_secs(1);
/// What a manager in use takes, in bytes, as measured. JavaScript's garbage collector is told, which
/// would otherwise take thousands of forgotten ones, each of which goes on looking at its nodes, for
/// small objects that need no haste.
const SIZE: usize = 8 << 10;
/// The same for each of its nodes.
const SIZE_OF_NODE: usize = 24 << 10;
