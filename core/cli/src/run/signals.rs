//! Passes signals from the system to the main thread, as events. Owns their dispositions: an interpreter
//! that runs this code has set some.
#![allow(unsafe_code, reason = "setting a disposition has no safe form")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, ptr, thread};

use nix::libc;
use nix::sys::signal::{self, SaFlags, SigAction, SigHandler, SigSet};
use nix::unistd::{Pid, getpid, getsid};
use signal_hook::iterator::{Handle, Signals as Arrivals};
use signal_hook::{consts, flag};

use crate::failure::{Failure, code};
use crate::output::messages;

/// The number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signal(i32);

/// Tells of signals from a thread of its own; stops when dropped.
pub(super) struct Signals {
    handle: Handle,
    told_last: Arc<AtomicUsize>,
}

impl Signal {
    pub(super) const CHILD: Self = Self(consts::SIGCHLD);
    pub(super) const CONTINUE: Self = Self(consts::SIGCONT);
    pub(super) const INTERRUPT: Self = Self(consts::SIGINT);
    pub(super) const QUIT: Self = Self(consts::SIGQUIT);
    pub(super) const TERMINATE: Self = Self(consts::SIGTERM);
    pub(super) const HANGUP: Self = Self(consts::SIGHUP);
    pub(super) const KILL: Self = Self(consts::SIGKILL);
    /// Ctrl-Z.
    pub(super) const STOP: Self = Self(consts::SIGTSTP);
    /// Stops a process whatever it does about other signals.
    pub(super) const HALT: Self = Self(consts::SIGSTOP);

    pub(super) fn of(number: i32) -> Self {
        Self(number)
    }

    /// The status of a process that it has ended, as shells tell it.
    pub(super) fn status(self) -> u8 {
        code::SIGNAL.saturating_add(u8::try_from(self.0).unwrap_or(0))
    }

    /// Whether it ends a process that does nothing about it.
    pub(super) fn ends_a_process(self) -> bool {
        ending().any(|it| it == self.0)
    }

    /// Whether a process gets it to end.
    pub(super) fn asks_to_end(self) -> bool {
        ASKING.contains(&self.0)
    }

    /// Whether a terminal sends it for a key, to end what is in the foreground.
    pub(super) fn is_of_keyboard(self) -> bool {
        matches!(self, Self::INTERRUPT | Self::QUIT)
    }

    /// Whether a process in the background gets it when it uses the terminal.
    pub(super) fn asks_for_terminal(self) -> bool {
        matches!(self.0, consts::SIGTTIN | consts::SIGTTOU)
    }

    /// Whether it stops a process that does nothing about it.
    pub(super) fn stops_a_job(self) -> bool {
        self == Self::STOP || self.asks_for_terminal()
    }

    /// Whether this process was started to ignore it.
    pub(super) fn is_ignored(self) -> bool {
        is_ignored(self.0)
    }

    pub(super) fn number(self) -> i32 {
        self.0
    }
}

impl Signals {
    /// Tells of the signals that end a process from now on. Those that this process was started to
    /// ignore, as `nohup` does, stay ignored, by the command as well.
    pub(super) fn listen(tell: impl Fn(Signal) + Send + 'static) -> Result<Self, Failure> {
        let wanted: Vec<i32> = ending().filter(|it| !is_ignored(*it)).collect();
        for number in &wanted {
            restore(*number);
        }
        restore(consts::SIGCHLD);
        // The process that has started this one may have blocked them.
        let _ =
            signal::pthread_sigmask(signal::SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
        let wanted = wanted.iter().chain([&consts::SIGCHLD]);
        let mut signals = Arrivals::new(wanted).map_err(|error| failed(&error))?;
        let handle = signals.handle();
        let forward = move || signals.forever().for_each(|it| tell(Signal(it)));
        thread::Builder::new()
            .name("quorlock-signals".into())
            .spawn(forward)
            .map_err(|error| failed(&error))?;
        Ok(Self { handle, told_last: Arc::new(AtomicUsize::new(GOES_ON)) })
    }

    /// Tells also of those that stop and continue a job, and of a change of the window, once there
    /// is a child to pass them to. A group in the background is stopped where one of it uses the terminal.
    pub(super) fn listen_for_jobs(&mut self) -> Result<(), Failure> {
        for number in JOB {
            if !is_ignored(number) {
                restore(number);
                let told = if number == consts::SIGCONT { GOES_ON } else { STOPS };
                if number != consts::SIGWINCH {
                    // Before the other handler, which lets another thread run: what is told later must not be noted before.
                    flag::register_usize(number, Arc::clone(&self.told_last), told)
                        .map_err(|error| failed(&error))?;
                }
                self.handle.add_signal(number).map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }

    /// What the job of this process was told last.
    pub(super) fn told_last(&self) -> ToldLast {
        ToldLast(Arc::clone(&self.told_last))
    }
}

/// What the job of this process was told last: to stop, or to go on. Known at once, in the order in which it was told.
pub(super) struct ToldLast(Arc<AtomicUsize>);

impl ToldLast {
    pub(super) fn goes_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) == GOES_ON
    }

    /// Nothing notes the continuation that ends a stop. To be called before that: what stops the group after it, as a pager
    /// that reads, is noted at once.
    fn note_continuation(&self) {
        self.0.store(GOES_ON, Ordering::SeqCst);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Ctrl-C ends this process again, whatever an interpreter has set.
pub(crate) fn restore_interrupt() {
    if !is_ignored(consts::SIGINT) {
        restore(consts::SIGINT);
    }
}

/// Lets the signals that end a process end this one also where it is the first of a container: there the system does not
/// act on those that nobody handles. Not for `run`, which listens for them.
pub(crate) fn end_first_process() {
    if getpid() != Pid::from_raw(1) {
        return;
    }
    for number in ending().filter(|it| !is_ignored(*it)) {
        restore(number);
        let status = i32::from(Signal(number).status());
        // SAFETY: the handler ends the process by a call that handlers may make.
        let _ = unsafe {
            signal_hook::low_level::register(number, move || signal_hook::low_level::exit(status))
        };
    }
}

/// Stops the group of this process, as the terminal would by `signal`; returns when it is continued. Without a shell
/// that could continue it, the system does not stop it.
pub(super) fn stop_own_group(signal: Signal, told_last: &ToldLast) {
    let Ok(number) = signal::Signal::try_from(signal.0) else { return };
    with_action(SigHandler::SigDfl, number, || {
        told_last.note_continuation();
        // This is the main thread, and the kernel lets it act on the signal before the call returns.
        let _ = signal::kill(Pid::from_raw(0), number);
    });
}

/// Stops this process alone, unless its group was told last to go on: it would be the only one that stands still.
pub(super) fn stop_own_process(signal: Signal, told_last: &ToldLast) {
    let Ok(number) = signal::Signal::try_from(signal.0) else { return };
    let stop = SigSet::from(number);
    let _ = stop.thread_block();
    // It waits for this thread. From here on, a continuation takes it back.
    let _ = signal::raise(number);
    let goes_on = told_last.goes_on();
    let action = if goes_on { SigHandler::SigIgn } else { SigHandler::SigDfl };
    with_action(action, number, || {
        if !goes_on {
            told_last.note_continuation();
        }
        let _ = stop.thread_unblock();
    });
}

/// Does something while a signal that stops has this action.
fn with_action(action: SigHandler, stop: signal::Signal, act: impl FnOnce()) {
    let set = |number, handler| {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler is installed.
        unsafe { signal::sigaction(number, &action) }
    };
    // An event that tells of this continuation would come when the command may be stopped again, and continue that.
    let changed = [(stop, action), (signal::Signal::SIGCONT, SigHandler::SigDfl)];
    let before = changed.map(|(number, handler)| (number, set(number, handler)));
    act();
    for (number, before) in before {
        if let Ok(before) = before {
            // SAFETY: it was there before.
            let _ = unsafe { signal::sigaction(number, &before) };
        }
    }
}

/// Lets the processes of this one's group go on.
pub(super) fn continue_own_group() {
    let _ = signal::kill(Pid::from_raw(0), signal::Signal::SIGCONT);
}

/// Ends this process by the signal of a key that has ended the command: a script or a loop of a shell around it goes on
/// where a command exits by itself. If the command `had_terminal`, the signal was sent to its group in place of
/// this one, to which a script belongs: all of this group get it then. The first process of a session has nobody
/// around it, and returns from here; it exits with the status.
pub(super) fn end_by_key(key: Signal, had_terminal: bool) {
    let Ok(number) = signal::Signal::try_from(key.0) else { return };
    if is_ignored(key.0) || leads_session() {
        return;
    }
    messages::finish();
    // The command has left a core, if one is wanted.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is valid.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    restore(key.0);
    let receiver = if had_terminal { Pid::from_raw(0) } else { getpid() };
    // This is the main thread, and the kernel lets it act on the signal before the call returns.
    let _ = signal::kill(receiver, number);
}

/// Sets the defaults of the signals that end a process and that this one listens to. Makes system calls only: a child that
/// was forked does it, as the handlers that it has from its parent would swallow a signal.
pub(super) fn restore_all() {
    ending().filter(|it| !is_ignored(*it)).for_each(restore);
}

/// Whether this process is the first of its session, as under `docker run -it`: no shell is around it.
pub(super) fn leads_session() -> bool {
    getsid(None) == Ok(getpid())
}

fn is_ignored(number: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is set, and the present one has a place.
    let read = unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has filled it in.
    read == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

fn restore(number: i32) {
    // By the system's own call, as nix's knows no real-time signals.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(number, libc::SIG_DFL) };
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(code::INTERNAL, format!("signals cannot be received: {error}"))
}

/// The signals that end a process which does nothing about them.
fn ending() -> impl Iterator<Item = i32> {
    ASKING.into_iter().chain(TALKING).chain(real_time())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn real_time() -> impl Iterator<Item = i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn real_time() -> impl Iterator<Item = i32> {
    std::iter::empty()
}

const STOPS: usize = 0;
const GOES_ON: usize = 1;
/// Those that ask a process to end.
const ASKING: [i32; 4] = [consts::SIGTERM, consts::SIGINT, consts::SIGHUP, consts::SIGQUIT];
/// Those of a job.
const JOB: [i32; 5] =
    [consts::SIGTSTP, consts::SIGTTIN, consts::SIGTTOU, consts::SIGCONT, consts::SIGWINCH];
/// Those by which programs are told other things.
const TALKING: [i32; 3] = [consts::SIGUSR1, consts::SIGUSR2, consts::SIGALRM];
