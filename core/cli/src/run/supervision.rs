//! What is done while the command runs: signals are passed on, stops and continuations of the job
//! are followed, and a lost lock ends the command. Owns these rules; the system's part is in
//! `child` and `terminal`.

mod stops;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use quorlock::{Lease, LockError};

use super::Event;
use super::child::{Change, Child, send};
use super::signals::{Signal, ToldLast};
use super::terminal::{Terminal, is_in_pipeline, is_used_alone};
use crate::output::complain;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The command has ended, with this status.
    Ended(u8),
    /// Ctrl-C or Ctrl-\ has ended the command, in the foreground of a terminal.
    EndedByKey {
        key: Signal,
        /// Whether the command's group had the terminal, so that no other process got the signal.
        had_terminal: bool,
    },
    /// The lock was lost before the command had ended.
    Lost,
}

/// What was told of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// That the command is being ended.
    Ending,
    /// That it goes on, as it cannot be ended.
    OutOfReach,
}

/// The command, its terminal and its lease.
pub(super) struct Supervision<'a> {
    child: Child,
    terminal: Option<Terminal>,
    lease: &'a Lease,
    grace: Duration,
    /// Since the lock was lost, what was told of that.
    loss: Option<Told>,
    /// Whether this process was continued after the end of the lease, whose loss is told in a
    /// moment: until then the command must not go on.
    awaits_loss: bool,
    /// Whether the command is put into the foreground when this job is there.
    wants_terminal: bool,
    /// Whether the command's group had the terminal when nothing was left of it but processes
    /// outside of it.
    had_terminal: bool,
    /// The signal of a key that this process got while the command had the terminal, and when: a program has sent it.
    no_key: Option<(Signal, Instant)>,
    /// When this process was told last to stop, as were the others of its group.
    told_to_stop: Option<Instant>,
    /// For the words about a hang-up.
    hung_up: Once,
    /// Whether there is a SIGTERM among the events to come.
    is_terminated: Arc<AtomicBool>,
    told_last: ToldLast,
    /// The last signal by which the command was asked to end.
    asked: Option<Signal>,
    /// The groups that were asked to end after a loss, and when each is killed if it has not ended by then.
    kill_at: Vec<(Pid, Instant)>,
}

impl<'a> Supervision<'a> {
    pub(super) fn new(
        child: Child,
        terminal: Option<Terminal>,
        lease: &'a Lease,
        grace: Duration,
        is_terminated: Arc<AtomicBool>,
        told_last: ToldLast,
    ) -> Self {
        Self {
            child,
            terminal,
            lease,
            grace,
            loss: None,
            awaits_loss: false,
            wants_terminal: is_used_alone(),
            had_terminal: false,
            no_key: None,
            told_to_stop: None,
            hung_up: Once::new(),
            is_terminated,
            told_last,
            asked: None,
            kill_at: Vec::new(),
        }
    }

    /// Returns when no process of the command is left, and the terminal is ours again.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> End {
        loop {
            if let Some(Change::Stopped(signal)) = self.child.reap() {
                self.follow_stop(signal);
                continue;
            }
            self.child.look(self.asked.is_some());
            if self.child.is_over() {
                break;
            }
            self.ask_found();
            self.tell_out_of_reach();
            self.kill_in_time();
            match self.next(events) {
                Some(Event::Signal(signal)) => self.pass_on(signal),
                Some(Event::Lost(error)) => self.lose(&error),
                None if self.awaits_loss => self.resume(),
                Some(Event::Acquired(_)) | None => {}
            }
        }
        if self.child.has_unlisted() {
            complain(UNLISTED);
        }
        self.end()
    }

    fn end(&self) -> End {
        let had_terminal = self.had_terminal || self.has_terminal();
        self.take_terminal_back();
        let shown = self.terminal.as_ref().filter(|terminal| terminal.is_ours());
        // Beside a pager the modes are the pager's.
        if let (Some(terminal), Some(_)) = (shown, self.child.ended_by())
            && had_terminal
            && !is_in_pipeline()
        {
            terminal.restore_modes();
        }
        // A command that has survived it for long has ended by another.
        let no_key = self.no_key.filter(|(_, at)| at.elapsed() < self.grace).map(|(by, _)| by);
        let is_key = |by: &Signal| by.is_of_keyboard() && shown.is_some() && no_key != Some(*by);
        let key = self.child.ended_by().filter(is_key);
        match (self.child.status(), key) {
            (Some(_), Some(key)) if !self.is_lost() => End::EndedByKey { key, had_terminal },
            (Some(status), None) if !self.is_lost() => End::Ended(status),
            _ => End::Lost,
        }
    }

    /// The next event; `None` if there was none for a while.
    fn next(&self, events: &Receiver<Event>) -> Option<Event> {
        let reached = self.child.reached();
        let kills = self.kill_at.iter().filter(|(group, _)| reached.contains(group));
        let until_kill = kills.map(|(_, at)| at.saturating_duration_since(Instant::now())).min();
        // Nobody tells of the end of the group's other processes where they are not our children.
        let is_ending = self.child.status().is_some() || self.loss == Some(Told::Ending);
        let until_look = match self.child.is_group_over() {
            _ if self.awaits_loss => Some(LOOK_EVERY),
            false if is_ending => Some(LOOK_EVERY),
            false => self.asked.map(|_| LOOK_FOR_SESSION_EVERY),
            // Those that are left now are children, but nobody tells who calls `setsid`.
            true => Some(LOOK_FOR_SESSION_EVERY),
        };
        let Some(patience) = until_kill.into_iter().chain(until_look).min() else {
            return events.recv().ok();
        };
        events.recv_timeout(patience).ok()
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::CONTINUE => self.resume(),
            Signal::TERMINATE => {
                self.is_terminated.store(false, Ordering::SeqCst);
                self.terminate();
            }
            // The group was continued since then: with this process, which has followed an earlier stop.
            signal if signal.stops_a_job() && self.told_last.goes_on() => {}
            signal if signal.asks_for_terminal() => self.yield_terminal(),
            Signal::STOP => self.stop(),
            signal if signal.asks_to_end() => {
                self.asked = Some(signal);
                if signal.is_of_keyboard() && self.has_terminal() {
                    self.no_key = Some((signal, Instant::now()));
                }
                self.child.signal(signal);
                // No key or shell continues a job there that the terminal has stopped: it would not act on the signal.
                if self.child.is_group_over() {
                    self.child.signal(Signal::CONTINUE);
                }
            }
            // The processes that the command has started may know nothing of it.
            signal => self.child.tell(signal),
        }
    }

    /// Asks processes to end that were found after the command was asked to.
    fn ask_found(&mut self) {
        let found = self.child.take_found();
        // Keys go to this process now, as nothing is left of the command's group.
        if self.child.is_group_over()
            && self.terminal.as_ref().is_some_and(|it| it.is_of(self.child.group()))
        {
            self.had_terminal = true;
            self.take_terminal_back();
        }
        let key = self.child.ended_by().filter(|by| by.is_of_keyboard());
        if found.is_empty() {
            return;
        }
        let Some(signal) = self.asked.or(key) else { return self.hang_up_stopped(&found) };
        for group in &found {
            send(*group, signal);
            send(*group, Signal::CONTINUE);
        }
        if self.is_lost() {
            self.kill_later(&found);
        }
    }

    /// What stands still when its shell ends is left without one that could continue it. Without this process, its new
    /// parent, the system would do the same.
    fn hang_up_stopped(&self, found: &[Pid]) {
        if self.awaits_loss {
            return;
        }
        for group in self.child.stopped(found) {
            send(group, Signal::HANGUP);
            send(group, Signal::CONTINUE);
        }
    }

    /// The lock is lost: others may hold it now.
    fn lose(&mut self, error: &LockError) {
        if self.is_lost() || self.child.is_over() {
            return;
        }
        self.awaits_loss = false;
        self.child.look(true);
        self.child.take_found();
        self.terminate();
        let groups = self.child.reached().to_vec();
        self.kill_later(&groups);
        let (told, then) = if self.child.is_out_of_reach() {
            (Told::OutOfReach, OUT_OF_REACH)
        } else {
            (Told::Ending, "the command is being ended")
        };
        self.loss = Some(told);
        complain(&format!("{error}; {then}"));
    }

    /// Tells of what is left once the others of the group have ended, if that cannot be ended.
    fn tell_out_of_reach(&mut self) {
        if self.loss == Some(Told::Ending) && self.child.is_out_of_reach() {
            self.loss = Some(Told::OutOfReach);
            complain(OUT_OF_REACH);
        }
    }

    fn is_lost(&self) -> bool {
        self.loss.is_some()
    }

    /// Asks the command to end. A process that is stopped acts on that once it is continued.
    fn terminate(&mut self) {
        self.asked = Some(Signal::TERMINATE);
        self.child.signal(Signal::TERMINATE);
        // After a stop, the steps in other groups are told as well before they can go on.
        for group in self.child.take_halted() {
            send(group, Signal::TERMINATE);
            send(group, Signal::CONTINUE);
        }
        self.child.signal(Signal::CONTINUE);
    }

    /// Each group has a grace of its own: one that is found later does not put off the end of the others.
    fn kill_later(&mut self, groups: &[Pid]) {
        let at = Instant::now() + self.grace;
        self.kill_at.extend(groups.iter().map(|group| (*group, at)));
    }

    /// Kills the groups whose grace has passed. (Another may have the number of a group that is not reached.)
    fn kill_in_time(&mut self) {
        let (now, reached) = (Instant::now(), self.child.reached());
        let is_due = |&mut (group, at): &mut (Pid, Instant)| at <= now && reached.contains(&group);
        for (group, _) in self.kill_at.extract_if(.., is_due) {
            send(group, Signal::KILL);
        }
    }

    fn has_terminal(&self) -> bool {
        let is_of = |group: &Pid| self.terminal.as_ref().is_some_and(|it| it.is_of(*group));
        self.child.groups().iter().any(is_of)
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal
            && self.has_terminal()
        {
            terminal.take_back();
        }
    }
}

const OUT_OF_REACH: &str = "the command goes on without the lock: what is left of it runs as another user, and \
    cannot be signalled";
const UNLISTED: &str = "processes of the command may be left in other groups, and go on without the lock: the system does \
    not list the children of this process in /proc";
/// How often it is looked for what nobody tells of.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether a process has called `setsid`, as one does that becomes a daemon.
const LOOK_FOR_SESSION_EVERY: Duration = Duration::from_millis(500);
