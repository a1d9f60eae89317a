//! Starts, signals and reaps the command of `run`: its process, its process group, and processes of it that have left
//! the group. Knows no lock.
#![allow(unsafe_code, reason = "what a child does before it becomes the command has no safe form")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::signal::{
    SigHandler, SigSet, SigmaskHow, Signal as Number, killpg, pthread_sigmask, signal,
};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid};

use super::not_started::not_started;
use super::orphans::{Orphans, are_children_listed, is_group_orphaned};
use super::signals::{Signal, leads_session, restore_all};
use super::terminal::Terminal;
use crate::failure::{Failure, code};

/// A variable of the environment; without a value it is removed.
pub(super) type Variable = (&'static str, Option<String>);

/// The command, in a process group of its own.
pub(super) struct Child {
    leader: Pid,
    /// The status of the command itself, once it has ended.
    status: Option<u8>,
    ended_by: Option<Signal>,
    /// Whether no process of its group is left: another group may get the number then.
    is_group_over: bool,
    has_children: bool,
    orphans: Orphans,
    /// The other groups in which processes of it are left, as they were found last.
    left: Vec<Pid>,
    /// Its group, and all others that were found.
    groups: Vec<Pid>,
    /// The groups that were halted because not all of their processes had stopped.
    halted: BTreeSet<Pid>,
}

/// What has become of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was stopped by this signal.
    Stopped(Signal),
    Continued,
}

impl Child {
    /// Starts the command. If this process is alone in the foreground of a terminal, the command is put there in its
    /// place.
    ///
    /// To be called on the main thread: the command is told when the thread ends that has started
    /// it.
    pub(super) fn start(words: &[OsString], variables: &[Variable]) -> Result<Self, Failure> {
        let (program, arguments) = words.split_first().expect("the command line was checked");
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let orphans = Orphans::before_start();
        adopt_orphans();
        pass_on(stdin());
        pass_on(stdout());
        pass_on(stderr());
        let (parent, terminal) = (getpid(), Arc::new(Terminal::in_foreground_alone()));
        let of_child = Arc::clone(&terminal);
        let jobs = JobSignals::now();
        // SAFETY: the closure makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(move || prepare(parent, of_child.as_ref().as_ref(), jobs)) };
        let child = command.spawn().map_err(|error| {
            // The process that could not become the command had it.
            terminal.iter().for_each(Terminal::take_back);
            not_started(program, &error)
        })?;
        let leader = Pid::from_raw(i32::try_from(child.id()).expect("a process id is positive"));
        Ok(Self {
            leader,
            status: None,
            ended_by: None,
            is_group_over: false,
            has_children: true,
            orphans,
            left: Vec::new(),
            groups: vec![leader],
            halted: BTreeSet::new(),
        })
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.leader
    }

    /// Its process group, and all others that were found.
    pub(super) fn groups(&self) -> &[Pid] {
        &self.groups
    }

    /// The status of the command itself, once it has ended.
    pub(super) fn status(&self) -> Option<u8> {
        self.status
    }

    /// The signal that has ended the command itself, if one has.
    pub(super) fn ended_by(&self) -> Option<Signal> {
        self.ended_by
    }

    /// Sends a signal to the command itself, unless it has ended.
    pub(super) fn tell(&self, signal: Signal) {
        if self.status.is_none() {
            // SAFETY: the process was not reaped yet, so the number is its own.
            unsafe { libc::kill(self.leader.as_raw(), signal.number()) };
        }
    }

    /// Sends a signal to all processes of the group that this user may signal, or to those that are left outside of it.
    pub(super) fn signal(&self, signal: Signal) {
        self.reached().iter().for_each(|group| send(*group, signal));
    }

    /// Stops what goes on after a stop of the command: processes that do something else about Ctrl-Z, and those in
    /// other groups, which the terminal does not tell.
    pub(super) fn halt(&mut self) {
        self.await_stop();
        self.signal(Signal::HALT);
        let mut told = BTreeSet::new();
        for _ in 0..MOST_LOOKS {
            // What was forked before its parent stood still is found by the next look.
            let mut new = self.orphans.workers();
            new.retain(|it| told.insert(it.process));
            if new.is_empty() {
                break;
            }
            let groups: BTreeSet<Pid> = new.iter().map(|it| it.group).collect();
            for group in &groups {
                send(*group, Signal::HALT);
            }
            self.halted.extend(groups);
        }
    }

    /// Waits for a moment until all that the terminal has told have stopped: some undo their modes of the terminal before.
    fn await_stop(&self) {
        let limit = Instant::now() + TO_STOP;
        let is_told = |group: &Pid| self.reached().contains(group);
        while self.orphans.workers().iter().any(|it| is_told(&it.group)) && Instant::now() < limit {
            sleep(TO_STOP / 20);
        }
    }

    /// Lets the processes go on that were halted. To be called before the command's group goes on: a shell that finds a step
    /// of its own stopped gives it up.
    pub(super) fn resume_halted(&mut self) {
        for group in self.take_halted() {
            send(group, Signal::CONTINUE);
        }
    }

    /// The groups that stand still since the command was stopped. (One whose processes were killed since then may have lost
    /// its number to others.)
    pub(super) fn take_halted(&mut self) -> Vec<Pid> {
        if self.halted.is_empty() {
            return Vec::new();
        }
        let present = self.orphans.all_groups();
        std::mem::take(&mut self.halted).intersection(&present).copied().collect()
    }

    /// Whether processes are left, all of which run as other users, whom this one may not signal.
    pub(super) fn is_out_of_reach(&self) -> bool {
        let reached = self.reached();
        !reached.is_empty() && reached.iter().all(|it| killpg(*it, None) == Err(Errno::EPERM))
    }

    /// The groups that get signals.
    pub(super) fn reached(&self) -> &[Pid] {
        let is_beyond = self.is_group_over || !self.left.is_empty();
        if is_beyond { &self.left } else { &self.groups[..1] }
    }

    /// Whether no process of its group is left.
    pub(super) fn is_group_over(&self) -> bool {
        self.is_group_over
    }

    /// Collects what has happened since the last call; returns what the command's own process did
    /// last. Once that has ended, a stop of another process of its group counts as its own: Ctrl-Z stops all of them.
    pub(super) fn reap(&mut self) -> Option<Change> {
        let mut change = None;
        loop {
            match poll() {
                Polled::News(process, News::Changed(news @ Change::Stopped(_)))
                    if self.status.is_some() && getpgid(Some(process)) == Ok(self.leader) =>
                {
                    change = Some(news);
                }
                Polled::News(process, _) if process != self.leader => {}
                Polled::News(_, News::Changed(news)) => change = Some(news),
                Polled::News(_, News::Ended { status, by }) => {
                    (self.status, self.ended_by) = (Some(status), by);
                }
                Polled::Quiet => return change,
                Polled::Childless => {
                    self.has_children = false;
                    // Nobody else should have waited for it. But a lock must not be kept for ever.
                    self.status.get_or_insert(code::INTERNAL);
                    return change;
                }
            }
        }
    }

    /// Looks for processes that have left its group, once the group is over. If the command `was_asked` to end, also while
    /// the rest of the group is out of reach: else that would put off the end of the others.
    pub(super) fn look(&mut self, was_asked: bool) {
        let group = if self.is_group_over { Err(Errno::ESRCH) } else { killpg(self.leader, None) };
        self.is_group_over |= self.status.is_some() && group == Err(Errno::ESRCH);
        self.left = if self.is_group_over {
            if self.has_children { self.orphans.groups() } else { Vec::new() }
        } else if was_asked && group == Err(Errno::EPERM) {
            // With its own: the user may continue it even so.
            self.orphans.all_groups().into_iter().collect()
        } else {
            Vec::new()
        };
    }

    /// Whether processes of it may be left that the system does not list.
    pub(super) fn has_unlisted(&self) -> bool {
        self.has_children && !are_children_listed()
    }

    /// Whether no process of the command is left, as far as it was seen by the last look.
    pub(super) fn is_over(&self) -> bool {
        self.is_group_over && self.left.is_empty()
    }

    /// Those of the groups in which a process is stopped.
    pub(super) fn stopped(&self, groups: &[Pid]) -> Vec<Pid> {
        let stopped = self.orphans.stopped_groups();
        groups.iter().filter(|it| stopped.contains(it)).copied().collect()
    }

    /// The groups that were found since the last call.
    pub(super) fn take_found(&mut self) -> Vec<Pid> {
        let is_new = |it: &&Pid| !self.groups.contains(*it);
        let found: Vec<Pid> = self.left.iter().filter(is_new).copied().collect();
        self.groups.extend(&found);
        found
    }
}

/// Sends a signal to all processes of a group that this user may signal.
pub(super) fn send(group: Pid, signal: Signal) {
    if let Ok(number) = Number::try_from(signal.number()) {
        // An error means that none is left, or what `is_out_of_reach` tells.
        let _ = killpg(group, number);
    }
}

/// What the system tells of a child.
enum Polled {
    News(Pid, News),
    /// Nothing new.
    Quiet,
    /// There is no child.
    Childless,
}

enum News {
    Ended { status: u8, by: Option<Signal> },
    Changed(Change),
}

/// The next news of any child: of the command itself, or of a process whose parent has ended, of which nothing but its
/// end matters. By the system's own call, as nix's knows no real-time signals.
fn poll() -> Polled {
    let (mut status, flags) = (0, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED);
    let process = loop {
        // SAFETY: the status has a place.
        match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
            0 => return Polled::Quiet,
            -1 if Errno::last() == Errno::EINTR => {}
            -1 => return Polled::Childless,
            process => break Pid::from_raw(process),
        }
    };
    let news = if libc::WIFEXITED(status) {
        let status = u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX);
        News::Ended { status, by: None }
    } else if libc::WIFSIGNALED(status) {
        let by = Signal::of(libc::WTERMSIG(status));
        News::Ended { status: by.status(), by: Some(by) }
    } else if libc::WIFSTOPPED(status) {
        News::Changed(Change::Stopped(Signal::of(libc::WSTOPSIG(status))))
    } else {
        News::Changed(Change::Continued)
    };
    Polled::News(process, news)
}

/// What the command does about the signals of a terminal's job.
#[derive(Clone, Copy)]
struct JobSignals {
    /// It takes no notice of Ctrl-Z: no shell could continue it.
    ignores_stop: bool,
    /// It is stopped when it uses the terminal, although this process was started to ignore that: the command is put into
    /// the background here.
    asks: bool,
}

impl JobSignals {
    fn now() -> Self {
        let terminal = Terminal::open();
        Self {
            ignores_stop: terminal.is_some() && (leads_session() || is_group_orphaned()),
            asks: terminal.is_some_and(|it| it.is_ours()),
        }
    }
}

/// What the child does before it becomes the command.
fn prepare(parent: Pid, terminal: Option<&Terminal>, jobs: JobSignals) -> io::Result<()> {
    // Ctrl-C and the end of the parent must not be lost. (Ctrl-Z may be: the parent cannot follow it yet.)
    restore_all();
    if let Some(terminal) = terminal {
        terminal.give(getpgrp());
    }
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    // Python ignores it, and what is ignored would stay so. (The standard library restores SIGPIPE.)
    // SAFETY: no handler is installed.
    unsafe { signal(Number::SIGXFSZ, SigHandler::SigDfl)? };
    if jobs.asks {
        // SAFETY: no handler is installed.
        unsafe { signal(Number::SIGTTIN, SigHandler::SigDfl)? };
        // SAFETY: as above.
        unsafe { signal(Number::SIGTTOU, SigHandler::SigDfl)? };
    }
    if jobs.ignores_stop {
        // No shell could continue it. Started without `run`, it would not be stopped either.
        // SAFETY: as above.
        unsafe { signal(Number::SIGTSTP, SigHandler::SigIgn)? };
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        nix::sys::prctl::set_pdeathsig(Number::SIGTERM)?;
        // It may have ended before it was watched.
        if getppid() != parent {
            return Err(Errno::ESRCH.into());
        }
    }
    Ok(())
}

/// Lets the child have a standard stream: Node marks all that it was started with as its own.
fn pass_on(stream: impl AsFd) {
    // An error means that there is none.
    let _ = fcntl(stream, FcntlArg::F_SETFD(FdFlag::empty()));
}

/// Processes whose parents have ended become children of this one, so that they are reaped. Where the system cannot do that, its first process reaps them.
fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// How long processes have to stop by themselves.
const TO_STOP: Duration = Duration::from_millis(100);
/// How often it is looked for processes that go on, at the most.
const MOST_LOOKS: usize = 10;
