//! `run`: a command under a lock. Owns the order of what happens; `child`, `orphans`, `signals` and
//! `terminal` own the parts of the system, `supervision` what is done about each event.

mod child;
mod not_started;
#[cfg(target_os = "linux")]
mod npx;
mod orphans;
mod signals;
mod supervision;
mod terminal;

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use quorlock::embed::UndeliveredLease;
use quorlock::{
    Builder, EventName, Interest, LeaseGuard, Lock, LockError, Redlock, ReleaseOutcome, Sequencer,
};

use self::child::{Child, Variable};
use self::signals::{Signal, Signals, end_by_key};
pub(crate) use self::signals::{end_first_process, restore_interrupt};
use self::supervision::{End, Supervision};
use self::terminal::Terminal;
use crate::arguments::Run;
use crate::context::Context;
use crate::failure::{Failure, code, unconfirmed};
use crate::output::{complain, mention, messages};

/// What the main thread waits for.
enum Event {
    Signal(Signal),
    Acquired(Result<UndeliveredLease, LockError>),
    Lost(LockError),
}

/// Runs the command under the lock; returns the status to exit with.
pub(crate) fn run(context: &Context, options: &Run) -> Result<u8, Failure> {
    messages::write_apart().map_err(|error| {
        Failure::new(code::INTERNAL, format!("the thread for messages cannot be started: {error}"))
    })?;
    let locks = manager(context, options)?.build()?;
    let lock = lock(&locks, options);
    lock.check()?;
    let (tell, events) = channel();
    let is_terminated = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::listen({
        let (tell, is_terminated) = (tell.clone(), Arc::clone(&is_terminated));
        move |signal| {
            is_terminated.fetch_or(signal == Signal::TERMINATE, Ordering::SeqCst);
            drop(tell.send(Event::Signal(signal)));
        }
    })?;
    #[cfg(target_os = "linux")]
    npx::end_with_shell();
    let acquiring = locks.engine().spawn({
        let (lock, tell) = (lock.clone(), tell.clone());
        async move {
            let acquired = lock.acquire().await.map(UndeliveredLease::from);
            // If nobody takes it any more, it is withdrawn.
            drop(tell.send(Event::Acquired(acquired)));
        }
    });
    let lease = match wait(&events) {
        Ok(Ok(acquired)) => acquired.deliver(),
        Ok(Err(error)) => {
            context.tell_the_rest(Duration::MAX);
            return Err(error.into());
        }
        Err(signal) => {
            drop((acquiring, events));
            // The nodes still have to hear that nobody waits.
            context.tell_the_rest(Duration::MAX);
            if signal.is_of_keyboard() && Terminal::open().is_some_and(|it| it.is_ours()) {
                end_by_key(signal, false);
            }
            return Ok(signal.status());
        }
    };
    if options.verbose {
        mention(&told_acquired(&lease));
    }
    lease.on_lost(move |error| drop(tell.send(Event::Lost(error))));
    let held = Held { context, lease, options };
    let terminal = Terminal::open();
    let result = held
        .start(&mut signals)
        .map(|child| {
            let told_last = signals.told_last();
            Supervision::new(child, terminal, &held.lease, options.grace, is_terminated, told_last)
        })
        .map(|supervision| supervision.run(&events));
    held.finish(&locks, result)
}

/// The manager of the lock, with what it says on standard error.
fn manager(context: &Context, options: &Run) -> Result<Builder, Failure> {
    let is_verbose = options.verbose;
    let mut manager = context.manager()?.on_notice(move |notice| {
        if is_verbose {
            mention(&notice.to_string());
        }
    });
    let around = options.names.iter().find(|name| is_held_around(name)).cloned();
    if is_verbose || around.is_some() {
        let once = Once::new();
        let waiting = Interest::NONE.and(EventName::Waiting);
        manager = manager.on_events(waiting, move |event| {
            once.call_once(|| {
                if is_verbose {
                    mention(&event.to_string());
                }
                if let Some(name) = &around {
                    mention(&format!("'{name}' {MAY_BE_HELD_AROUND}"));
                }
            });
        });
    }
    if !options.owner.is_empty() {
        manager = manager.owner(options.owner.iter().cloned());
    }
    Ok(manager)
}

/// Whether this process was started under a `run` that holds the lock, or held it when the variable was set.
fn is_held_around(name: &str) -> bool {
    let Ok(resource) = env::var("QUORLOCK_RESOURCE") else { return false };
    // Several names are written as in a sequencer.
    let several = format!("{resource}@1").parse::<Sequencer>();
    resource == name || several.is_ok_and(|it| it.resources().iter().any(|it| it == name))
}

fn lock(locks: &Redlock, options: &Run) -> Lock {
    let lock = locks
        .lock_all(&options.names)
        .ttl(options.ttl)
        .auto_extend(true)
        .max_hold(options.max_hold)
        .min_hold(options.min_hold)
        .lock_delay(options.lock_delay)
        .fair(options.fair);
    match options.wait {
        _ if options.try_once => lock.try_once(),
        Some(wait) => lock.timeout(wait),
        None => lock,
    }
}

/// Waits until the lock is held, or a signal ends the wait.
fn wait(events: &Receiver<Event>) -> Result<Result<UndeliveredLease, LockError>, Signal> {
    loop {
        match events.recv() {
            Ok(Event::Acquired(acquired)) => return Ok(acquired),
            Ok(Event::Signal(signal)) if signal.ends_a_process() => return Err(signal),
            Ok(_) => {}
            Err(_) => unreachable!("this thread keeps a sender until the lock is held"),
        }
    }
}

/// The lock, while it is held.
struct Held<'a> {
    context: &'a Context,
    lease: LeaseGuard,
    options: &'a Run,
}

impl Held<'_> {
    fn start(&self, signals: &mut Signals) -> Result<Child, Failure> {
        let sequencer = self.lease.sequencer();
        if sequencer.is_some() && !self.context.engine.block_on(self.lease.record_sequencer()) {
            self.mention("too few nodes know the sequencer yet: verify may fail until a renewal");
        }
        signals.listen_for_jobs()?;
        if !self.lease.is_valid() {
            let names = names(&self.options.names);
            let message = format!("the lease on {names} ended before the command was started");
            return Err(Failure::new(code::LOST, message));
        }
        Child::start(&self.options.command, &self.variables(sequencer.as_ref()))
    }

    /// The variables that the command finds in its environment.
    fn variables(&self, sequencer: Option<&Sequencer>) -> Vec<Variable> {
        let text = sequencer.map(Sequencer::to_string);
        // Several names are written as in the sequencer, since a name may hold anything.
        let resource = match (&self.options.names[..], &text) {
            ([name], _) => name.clone(),
            (names, None) => names.join(","),
            (_, Some(text)) => text.rsplit_once('@').map_or_else(String::new, |it| it.0.to_owned()),
        };
        let token = sequencer.map(|sequencer| sequencer.token().to_string());
        vec![
            ("QUORLOCK_RESOURCE", Some(resource)),
            ("QUORLOCK_TOKEN", Some(self.lease.token().to_owned())),
            ("QUORLOCK_TTL_MS", Some(self.options.ttl.as_millis().to_string())),
            ("QUORLOCK_FENCING_TOKEN", token),
            ("QUORLOCK_SEQUENCER", text),
        ]
    }

    /// Releases the lock; tells the status to exit with.
    fn finish(self, locks: &Redlock, result: Result<End, Failure>) -> Result<u8, Failure> {
        let Self { context, lease, options } = self;
        let asked = Instant::now();
        let lease = lease.into_lease();
        let released = context.engine.block_on(lease.release_told());
        let outcome = released.as_ref().map(|(outcome, _)| *outcome);
        let lost = outcome.ok().and_then(|outcome| lease.loss(outcome));
        if options.verbose && lost.is_none() && matches!(outcome, Ok(ReleaseOutcome::Released)) {
            mention(&format!("released after {}", seconds(asked.elapsed())));
        }
        if let Ok((ReleaseOutcome::Unknown, votes)) = &released {
            complain(&format!(
                "{}; it will be free in {} at the most",
                unconfirmed(&names(&options.names), &votes.now()),
                seconds((options.ttl + options.lock_delay).max(options.min_hold))
            ));
        }
        // Nodes that have not answered yet are given the time to.
        locks.engine().drain(PATIENCE);
        match (result?, lost) {
            (End::Lost, _) => Ok(code::LOST),
            (_, Some(error)) => Err(error.into()),
            (End::Ended(status), None) => Ok(status),
            (End::EndedByKey { key, had_terminal }, None) => {
                end_by_key(key, had_terminal);
                Ok(key.status())
            }
        }
    }

    fn mention(&self, message: &str) {
        if self.options.verbose {
            mention(message);
        }
    }
}

fn told_acquired(lease: &LeaseGuard) -> String {
    let names: Vec<&str> = lease.resources().collect();
    let token = lease.fencing_token();
    let token = token.map_or_else(String::new, |token| format!(", fencing token {token}"));
    format!("holding {} after {}{token}", names_of(&names), seconds(lease.elapsed()))
}

fn names(list: &[String]) -> String {
    names_of(&list.iter().map(String::as_str).collect::<Vec<_>>())
}

fn names_of(list: &[&str]) -> String {
    list.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

const MAY_BE_HELD_AROUND: &str = "may be held by the `quorlock run` that started this: then it cannot be had before that \
    ends";
/// How long the nodes that are not needed for the outcome have to answer to the release.
const PATIENCE: Duration = Duration::from_millis(100);
