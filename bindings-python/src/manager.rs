//! A manager as Python sees it: nodes and locks over them. Owns how it is rebuilt after a fork.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::TryFutureExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use quorlock::{Address, Builder, Event, Interest, NodeState, Redlock, Stats, Subscription};
use quorlock_protocol::{OnUnreachable, PolicyBuilder, Resources};

use crate::completion::Outcome;
use crate::convert::text;
use crate::errors::{self, raised};
use crate::fork::ForkLocal;
use crate::operation::Operation;
use crate::options::{self, Options};
use crate::{nodes, observing, process};

/// A set of nodes. Connects at the first operation, anew in a forked child.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Manager {
    addresses: Vec<Address>,
    options: Options,
    /// What is told of it beside the locks that it holds.
    owner: Option<BTreeMap<String, String>>,
    /// Whether its nodes may be left out.
    may_leave_out: bool,
    /// Locked only to read or replace it, and never while the interpreter lock is released: so no
    /// thread holds it during a fork.
    core: Mutex<Option<ForkLocal<Core>>>,
    closed: AtomicBool,
    /// The numbers of the nodes that are left out of new locks.
    left_out: Mutex<BTreeSet<usize>>,
    /// Tells the events of this manager from those of others.
    number: u64,
    /// Who wants every event, and not only those that are always logged: one bit each.
    wanted_by: AtomicU8,
}

/// The manager of one process.
struct Core {
    locks: Redlock,
    /// Tells the events that are not always logged, while somebody wants them.
    rest: Option<Subscription>,
}

#[pymethods]
impl Manager {
    #[new]
    fn new(
        nodes: &Bound<'_, PyList>,
        options: &Bound<'_, PyDict>,
        owner: Option<BTreeMap<String, String>>,
        may_leave_out: bool,
    ) -> PyResult<Self> {
        let addresses =
            nodes.iter().map(|node| nodes::address(&node)).collect::<PyResult<Vec<_>>>()?;
        let builder = addresses.iter().cloned().fold(owned(owner.as_ref()), Builder::address);
        builder.check().map_err(|error| raised(nodes.py(), &error))?;
        let options = options::parse(options)?;
        let (core, left_out, closed) = (Mutex::default(), Mutex::default(), AtomicBool::default());
        let (number, wanted_by) = (NUMBERS.fetch_add(1, Ordering::Relaxed), AtomicU8::default());
        Ok(Self {
            addresses,
            options,
            owner,
            may_leave_out,
            core,
            closed,
            left_out,
            number,
            wanted_by,
        })
    }

    /// Every node's address, state, its reason, and how many seconds its quarantine still lasts.
    fn nodes(&self) -> Vec<Status> {
        let Some(core) = self.begun() else {
            // Reading the states starts nothing.
            let connecting = |address| status(address, &NodeState::Connecting, None);
            return self.addresses().into_iter().map(connecting).collect();
        };
        let nodes = core.nodes().into_iter().zip(core.push_faults());
        nodes
            .map(|((address, state), push)| status(address.to_string(), &state, push.as_deref()))
            .collect()
    }

    /// Every node's address, without asking a node or starting anything.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.iter().map(ToString::to_string).collect()
    }

    /// What it has counted, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let core = self.begun();
        let stats = if let Some(core) = core {
            core.stats()
        } else {
            // Reading figures starts nothing.
            let addresses = self.addresses.iter().map(|it| it.to_string().into());
            Stats::before_all(&addresses.collect::<Vec<_>>())
        };
        observing::by_name(py, &stats.fields())
    }

    /// The number by which its events are known.
    #[getter]
    const fn number(&self) -> u64 {
        self.number
    }

    /// Says whether callbacks want every event from now on.
    fn hear_for_callbacks(&self, is_wanted: bool) {
        self.hear(CALLBACKS, is_wanted);
    }

    /// While `is_left_out`, makes no keys on the node with this number: it has no vote on new locks.
    fn leave_out(&self, node: usize, is_left_out: bool) {
        let slot = self.lock();
        let mut all = self.left_out();
        if is_left_out {
            all.insert(node);
        } else if !all.remove(&node) {
            return;
        }
        if let Some(core) = slot.as_ref().and_then(ForkLocal::get) {
            core.locks.leave_out(node, is_left_out);
        }
    }

    /// The settings of one lock, checked.
    fn plan(
        manager: &Bound<'_, Self>,
        resources: &Bound<'_, PyList>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Plan> {
        let names = resources.iter().map(|name| text("a resource name", &name));
        let names = names.collect::<PyResult<Vec<_>>>()?;
        let resources =
            Resources::new(&names).map_err(|error| raised(options.py(), &error.into()))?;
        let options = options::parse(options)?;
        let checked = options.policy.check_guards(&manager.get().options.policy);
        let checked = checked.and_then(|()| options.policy.check_resources(&resources));
        checked.map_err(|error| raised(manager.py(), &error.into()))?;
        Ok(Plan { manager: manager.clone().unbind(), names, options })
    }

    /// The settings of a lock on one resource that has no options of its own.
    fn plan_usual(manager: &Bound<'_, Self>, resource: &Bound<'_, PyAny>) -> PyResult<Plan> {
        Plan::on_one(manager, resource, manager.get().options)
    }

    /// Closes the connections; every later operation fails.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(core) = self.lock().as_ref().and_then(ForkLocal::get) {
            core.locks.close();
        }
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Manager {
    fn lock(&self) -> MutexGuard<'_, Option<ForkLocal<Core>>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager of this process, if anything was asked of it.
    fn begun(&self) -> Option<Redlock> {
        self.lock().as_ref().and_then(ForkLocal::get).map(|core| core.locks.clone())
    }

    fn left_out(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether one of those that may want every event wants it from now on. While none does,
    /// only those that are always logged are made.
    fn hear(&self, who: u8, is_wanted: bool) {
        if (self.wanted_by.load(Ordering::Relaxed) & who != 0) == is_wanted {
            return;
        }
        let mut slot = self.lock();
        let others = self.wanted_by.load(Ordering::Relaxed) & !who;
        let wanted_by = if is_wanted { others | who } else { others };
        self.wanted_by.store(wanted_by, Ordering::Relaxed);
        if let Some(core) = slot.as_mut().and_then(ForkLocal::get_mut) {
            core.hear(self.number, wanted_by != 0);
        }
    }

    /// The manager of this process.
    pub(crate) fn core(&self, py: Python<'_>) -> PyResult<Redlock> {
        let engine = process::engine(py)?;
        let mut slot = self.lock();
        if let Some(core) = slot.as_ref().and_then(ForkLocal::get) {
            return Ok(core.locks.clone());
        }
        let mut builder =
            owned(self.owner.as_ref()).engine(engine.clone()).policy(self.options.policy);
        builder = builder.may_leave_out(self.may_leave_out);
        if let Some(notices) = process::notices() {
            let number = self.number;
            builder = builder.on_notice(|notice| notices.keep(notice));
            builder =
                builder.on_events(Interest::WARNINGS, move |it| notices.keep_event(number, it));
        }
        for address in &self.addresses {
            builder = builder.address(address.clone());
        }
        let locks = builder.build().map_err(|error| raised(py, &error))?;
        if self.closed.load(Ordering::Acquire) {
            locks.close();
        }
        self.left_out().iter().for_each(|node| locks.leave_out(*node, true));
        let mut core = Core { locks: locks.clone(), rest: None };
        core.hear(self.number, self.wanted_by.load(Ordering::Relaxed) != 0);
        *slot = Some(ForkLocal::new(core));
        Ok(locks)
    }
}

impl Core {
    /// Has every event told, or only those that are always logged.
    fn hear(&mut self, number: u64, is_all: bool) {
        if !is_all {
            self.rest = None;
        } else if self.rest.is_none()
            && let Some(notices) = process::notices()
        {
            let tell = move |event: &Event| notices.keep_event(number, event);
            self.rest = Some(self.locks.subscribe(REST, tell));
        }
    }
}

impl Drop for Core {
    /// Leases may outlast the manager: what becomes of them is told as it was before.
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest.keep();
        }
    }
}

/// The resources and settings of one lock.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Plan {
    manager: Py<Manager>,
    names: Vec<String>,
    options: Options,
}

#[pymethods]
impl Plan {
    /// Starts an acquisition. `timeout` is -1 for the lock's own, `None` for no limit, or seconds.
    #[pyo3(signature = (blocking, timeout, block))]
    fn acquire(
        &self,
        py: Python<'_>,
        blocking: bool,
        timeout: &Bound<'_, PyAny>,
        block: bool,
    ) -> PyResult<Operation> {
        let policy = self.policy(blocking, timeout)?;
        let policy = policy.auto_extend(self.options.auto_extend.unwrap_or(block));
        let lock = self.manager.get().core(py)?.lock_all(&self.names).set(|_| policy);
        // The timeout counts from here, not from when a thread begins with it.
        let acquiring = lock.acquire();
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, acquiring.map_ok(|guard| Outcome::Won(guard.into()))))
    }

    /// The timeout of [`Plan::acquire`] in seconds, `None` also if it tries once; whether it goes on without a quorum.
    fn patience(&self, blocking: bool, timeout: &Bound<'_, PyAny>) -> PyResult<Patience> {
        let Ok(policy) = self.policy(blocking, timeout)?.build() else { return Ok((None, false)) };
        let timeout = policy.timeout().filter(|timeout| !timeout.is_zero());
        Ok((timeout.map(|it| it.as_secs_f64()), policy.on_unreachable() == OnUnreachable::Proceed))
    }

    /// Says whether the log wants every event of the manager from now on.
    fn hear_for_log(&self, is_wanted: bool) {
        self.manager.get().hear(LOG, is_wanted);
    }

    /// The manager whose settings these are.
    #[getter]
    fn manager(&self, py: Python<'_>) -> Py<Manager> {
        self.manager.clone_ref(py)
    }

    /// The same settings for a lock on one other resource.
    fn on(&self, resource: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::on_one(self.manager.bind(resource.py()), resource, self.options)
    }

    /// Starts to ask the nodes whether any client holds it.
    fn ask(&self, py: Python<'_>) -> PyResult<Operation> {
        let core = self.manager.get().core(py)?;
        let names = self.names.clone();
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, async move { core.is_locked(names).await.map(Outcome::Flag) }))
    }

    /// Starts to ask the nodes how many acquisitions wait for it.
    fn ask_waiters(&self, py: Python<'_>) -> PyResult<Operation> {
        let core = self.manager.get().core(py)?;
        let names = self.names.clone();
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, async move { core.waiters(names).await.map(Outcome::Count) }))
    }

    /// Starts to ask the nodes who holds it (the first of several).
    fn holder(&self, py: Python<'_>) -> PyResult<Operation> {
        let core = self.manager.get().core(py)?;
        let name = self.names.first().cloned().unwrap_or_default();
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, async move { core.holder(&name).await.map(Outcome::Holder) }))
    }

    /// Takes a lease over by its token.
    fn adopt(&self, py: Python<'_>, token: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let token = text("a lease token", token)?;
        let policy =
            self.options.policy.to_builder().auto_extend(self.options.auto_extend.unwrap_or(false));
        let lock = self.manager.get().core(py)?.lock_all(&self.names).set(|_| policy);
        let lease = lock.lease(&token);
        Ok(Operation::done(process::engine(py)?, lease.map(Outcome::Adopted)))
    }

    #[getter]
    fn resources(&self) -> Vec<String> {
        self.names.clone()
    }

    /// For how many seconds the nodes keep it.
    #[getter]
    fn ttl(&self) -> f64 {
        self.options.policy.ttl().as_duration().as_secs_f64()
    }

    /// `'a'`, or `'a', 'b'` for several.
    #[getter]
    fn title(&self) -> String {
        errors::quoted(&self.names)
    }
}

impl Plan {
    fn on_one(
        manager: &Bound<'_, Manager>,
        resource: &Bound<'_, PyAny>,
        options: Options,
    ) -> PyResult<Self> {
        let names = vec![text("a resource name", resource)?];
        Resources::new(&names).map_err(|error| raised(manager.py(), &error.into()))?;
        Ok(Self { manager: manager.clone().unbind(), names, options })
    }

    /// The settings for one acquisition; `timeout` as for [`Plan::acquire`].
    fn policy(&self, blocking: bool, timeout: &Bound<'_, PyAny>) -> PyResult<PolicyBuilder> {
        let policy = self.options.policy.to_builder();
        Ok(if !blocking {
            policy.try_once()
        } else if options::is_minus_one(timeout) {
            policy
        } else {
            policy.timeout(options::timeout(timeout)?)
        })
    }
}

fn owned(owner: Option<&BTreeMap<String, String>>) -> Builder {
    owner.map_or_else(Redlock::builder, |words| Redlock::builder().owner(words))
}

/// The number of the next manager of the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// Who may want every event.
const CALLBACKS: u8 = 1;
const LOG: u8 = 2;
/// What is told only if somebody wants it.
const REST: Interest = Interest::ALL.without(Interest::WARNINGS);

type Patience = (Option<f64>, bool);
/// One node as Python gets it: address, state, detail, seconds of quarantine.
type Status = (String, &'static str, Option<String>, Option<f64>);

fn status(address: String, state: &NodeState, push_fault: Option<&str>) -> Status {
    let left = state.quarantine_left().map(|left| left.as_secs_f64());
    (address, state.name(), state.detail().or(push_fault).map(str::to_owned), left)
}
