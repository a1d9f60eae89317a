//! What is done when the command, or the job of this process, is stopped and continued. Owns who is stopped with whom, and
//! what goes on first.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Supervision;
use crate::output::complain;
use crate::run::orphans::is_group_orphaned;
use crate::run::signals::{Signal, continue_own_group, stop_own_group, stop_own_process};

impl Supervision<'_> {
    /// This process and its group were told to stop.
    pub(super) fn stop(&mut self) {
        self.told_to_stop = Some(Instant::now());
        self.child.signal(Signal::STOP);
        if self.child.is_group_over() {
            self.follow_stop(Signal::STOP);
        }
    }

    /// Another process of our group has used the terminal from the background, which has stopped all of the group but this
    /// process. The command asks again when it needs the terminal.
    pub(super) fn yield_terminal(&mut self) {
        self.wants_terminal = false;
        if self.has_terminal() {
            self.take_terminal_back();
            continue_own_group();
        } else {
            self.stop();
        }
    }

    /// The command was stopped. For a shell the job is stopped when all of its processes are, so
    /// this one and the others of a pipeline stop, too. (The lock is not renewed meanwhile.)
    pub(super) fn follow_stop(&mut self, signal: Signal) {
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
        if signal.asks_for_terminal() && is_group_orphaned() {
            return self.hang_up();
        }
        // The lock is not renewed from here on.
        self.child.halt();
        self.take_terminal_back();
        // A `run` around this one, or a shell, is told that the terminal is wanted.
        let signal = if signal.asks_for_terminal() { signal } else { Signal::STOP };
        // Another `run` of the group would stop it a second time, after it was continued.
        let is_told = self.told_to_stop.take().is_some_and(|at| at.elapsed() < TO_FOLLOW);
        let began = Instant::now();
        if is_told {
            stop_own_process(signal, &self.told_last);
        } else {
            stop_own_group(signal, &self.told_last);
        }
        let is_unanswered = signal.asks_for_terminal() && !terminal.is_ours();
        if is_unanswered && began.elapsed() < ASKED_AGAIN {
            // The system stops no group that no shell could continue, which is not known everywhere.
            sleep(ASKED_AGAIN);
        }
        // A SIGTERM that has come before, as from a `run` around this one that has lost its lock, goes to the command first.
        sleep(TO_HEAR);
        if !self.is_terminated.load(Ordering::SeqCst) {
            self.resume();
        }
    }

    /// Nobody can give the command the terminal that it asks for, or continue this process. The system does the same with
    /// an orphaned group that is stopped. (The command's is not: it has this process.)
    fn hang_up(&self) {
        self.hung_up.call_once(|| complain(HUNG_UP));
        // It may take no notice and ask again at once.
        sleep(ASKED_AGAIN);
        self.child.signal(Signal::HANGUP);
        self.child.signal(Signal::CONTINUE);
    }

    /// This process was continued, by `fg`, `bg` or another program.
    pub(super) fn resume(&mut self) {
        // The command is asked to end before it can do anything else, with words that say why.
        self.awaits_loss = !self.is_lost() && !self.lease.is_valid();
        if self.awaits_loss {
            return;
        }
        self.child.resume_halted();
        // A Ctrl-Z between these two would be lost.
        if !self.is_lost()
            && let Some(terminal) = &self.terminal
            && self.wants_terminal
            && !self.child.is_group_over()
            && terminal.is_ours()
        {
            terminal.give(self.child.group());
        }
        self.child.signal(Signal::CONTINUE);
    }
}

const HUNG_UP: &str =
    "the command asks for the terminal, which nobody can give it, and was hung up";
/// How long a command waits that asks for a terminal which nobody can give it.
const ASKED_AGAIN: Duration = Duration::from_millis(100);
/// How long a stop of the command counts as the answer to a signal that the group got.
const TO_FOLLOW: Duration = Duration::from_secs(1);
/// How long the thread for signals needs to tell of one.
const TO_HEAR: Duration = Duration::from_millis(5);
