//! What is done while the command runs: signals are passed on, stops and continuations of the job
//! are followed, and a lost lock ends the command. Owns these rules; the system's part is in
//! `child` and `terminal`.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use quorlock::{Lease, LockError};

use super::Event;
use super::child::{Change, Child};
use super::signals::{Signal, stop_own_group};
use super::terminal::{Terminal, is_in_pipeline};
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
    /// When the group is killed, if it has not ended by then.
    kill_at: Option<Instant>,
}

impl<'a> Supervision<'a> {
    pub(super) fn new(
        child: Child,
        terminal: Option<Terminal>,
        lease: &'a Lease,
        grace: Duration,
    ) -> Self {
        Self {
            child,
            terminal,
            lease,
            grace,
            loss: None,
            awaits_loss: false,
            wants_terminal: !is_in_pipeline(),
            kill_at: None,
        }
    }

    /// Returns when no process of the command's group is left, and the terminal is ours again.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> End {
        loop {
            if let Some(Change::Stopped(signal)) = self.child.reap() {
                self.follow_stop(signal);
                continue;
            }
            if self.child.is_over() {
                break;
            }
            self.tell_out_of_reach();
            match self.next(events) {
                Some(Event::Signal(signal)) => self.pass_on(signal),
                Some(Event::Lost(error)) => self.lose(&error),
                Some(Event::Acquired(_)) => {}
                None if self.awaits_loss => self.resume(),
                None => self.kill_in_time(),
            }
        }
        self.end()
    }

    fn end(&self) -> End {
        let had_terminal = self.terminal.as_ref().is_some_and(|it| it.is_of(self.child.group()));
        self.take_terminal_back();
        let shown = self.terminal.as_ref().filter(|terminal| terminal.is_ours());
        if let (Some(terminal), Some(_)) = (shown, self.child.ended_by()) {
            terminal.restore_modes();
        }
        let key = self.child.ended_by().filter(|by| by.is_of_keyboard() && shown.is_some());
        match (self.child.status(), key) {
            (Some(_), Some(key)) if !self.is_lost() => End::EndedByKey { key, had_terminal },
            (Some(status), None) if !self.is_lost() => End::Ended(status),
            _ => End::Lost,
        }
    }

    /// The next event; `None` if there was none for a while.
    fn next(&self, events: &Receiver<Event>) -> Option<Event> {
        let until_kill = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        // Nobody tells of the end of the group's other processes where they are not our children.
        let is_ending = self.loss == Some(Told::Ending);
        let must_look = self.child.status().is_some() || self.awaits_loss || is_ending;
        let until_look = must_look.then_some(LOOK_EVERY);
        let Some(patience) = until_kill.into_iter().chain(until_look).min() else {
            return events.recv().ok();
        };
        events.recv_timeout(patience).ok()
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::CONTINUE => self.resume(),
            Signal::TERMINATE => self.terminate(),
            signal => self.child.signal(signal),
        }
    }

    /// The lock is lost: others may hold it now.
    fn lose(&mut self, error: &LockError) {
        if self.is_lost() || self.child.status().is_some() && self.child.is_over() {
            return;
        }
        self.awaits_loss = false;
        self.terminate();
        self.kill_at = Some(Instant::now() + self.grace);
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
    fn terminate(&self) {
        self.child.signal(Signal::TERMINATE);
        self.child.signal(Signal::CONTINUE);
    }

    fn kill_in_time(&mut self) {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.child.signal(Signal::KILL);
        }
    }

    /// The command was stopped. For a shell the job is stopped when all of its processes are, so
    /// this one and the others of a pipeline stop, too. (The lock is not renewed meanwhile.)
    fn follow_stop(&mut self, signal: Signal) {
        if self.is_lost() {
            return self.child.signal(Signal::CONTINUE);
        }
        let Some(terminal) = &self.terminal else {
            // Nobody waits for a terminal: the lock is renewed, and the user who has stopped the
            // command can continue it.
            return;
        };
        self.wants_terminal |= signal.asks_for_terminal();
        if signal.asks_for_terminal() && terminal.is_ours() {
            terminal.give(self.child.group());
            return self.child.signal(Signal::CONTINUE);
        }
        self.take_terminal_back();
        stop_own_group();
        self.resume();
    }

    /// This process was continued, by `fg`, `bg` or another program.
    fn resume(&mut self) {
        // The command is asked to end before it can do anything else, with words that say why.
        self.awaits_loss = !self.is_lost() && !self.lease.is_valid();
        if self.awaits_loss {
            return;
        }
        if !self.is_lost()
            && let Some(terminal) = &self.terminal
            && self.wants_terminal
            && terminal.is_ours()
        {
            terminal.give(self.child.group());
        }
        self.child.signal(Signal::CONTINUE);
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal
            && terminal.is_of(self.child.group())
        {
            terminal.take_back();
        }
    }
}

const OUT_OF_REACH: &str = "the command goes on without the lock: what is left of it runs as another user, and \
    cannot be signalled";
/// How often it is looked for what nobody tells of.
const LOOK_EVERY: Duration = Duration::from_millis(20);
