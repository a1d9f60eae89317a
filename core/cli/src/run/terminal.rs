//! The terminal that this process was started from, and which job is in its foreground. Knows no
//! lock.

use std::fs::{File, OpenOptions};
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Number, pthread_sigmask};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::signals::Signal;

/// The controlling terminal.
pub(super) struct Terminal {
    device: File,
    /// Its modes when it was opened.
    modes: Option<libc::termios>,
}

impl Terminal {
    /// The controlling terminal; `None` without one, as under cron.
    pub(super) fn open() -> Option<Self> {
        let flags = OFlag::O_NOCTTY.bits();
        let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty");
        let device = device.ok()?;
        Some(Self { modes: tcgetattr(&device).ok().map(Into::into), device })
    }

    /// Whether the job of this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// Whether `group` is in the foreground.
    pub(super) fn is_of(&self, group: Pid) -> bool {
        self.foreground() == Some(group)
    }

    /// Puts `group` into the foreground. Makes system calls only: a child that was forked may do it.
    pub(super) fn give(&self, group: Pid) {
        // A terminal that has hung up has no foreground.
        let _ = from_background(|| tcsetpgrp(self.device.as_fd(), group));
    }

    /// Puts the job of this process into the foreground again.
    pub(super) fn take_back(&self) {
        self.give(getpgrp());
    }

    /// Sets the modes that it had: a program that was ended in the middle has left its own. Waits for no output, which may
    /// stand still after Ctrl-S.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = self.modes {
            let _ = from_background(|| tcsetattr(&self.device, SetArg::TCSANOW, &modes.into()));
        }
    }

    /// The controlling terminal, if this process is in its foreground, where nobody else is to use it.
    pub(super) fn in_foreground_alone() -> Option<Self> {
        Self::open().filter(|terminal| is_used_alone() && terminal.is_ours())
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.device.as_fd()).ok()
    }
}

/// Changes the terminal. The system would stop a process in the background for that, were the signal not blocked.
fn from_background<T>(change: impl FnOnce() -> T) -> T {
    let mut before = SigSet::empty();
    let mut blocked = SigSet::empty();
    blocked.add(Number::SIGTTOU);
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before));
    let done = change();
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    done
}

/// Whether nobody else of our group is to use the terminal when it is in the foreground: neither the other processes of
/// a pipeline, nor a script that has started this one by `&`, by which a shell without jobs takes the terminal as standard
/// input and SIGINT from it.
pub(super) fn is_used_alone() -> bool {
    // Only the controlling terminal tells it.
    let reads_terminal = tcgetpgrp(stdin()).is_ok();
    // A group from outside of this namespace of processes has no number here, and could not get the terminal back.
    let has_number = getpgrp() != Pid::from_raw(0);
    reads_terminal && has_number && !is_in_pipeline() && !Signal::INTERRUPT.is_ignored()
}

/// Whether this process reads from another, or writes to one.
pub(super) fn is_in_pipeline() -> bool {
    is_pipe(stdin()) || is_pipe(stdout())
}

fn is_pipe(stream: impl AsFd) -> bool {
    let Ok(stat) = fstat(stream) else {
        return false;
    };
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
}
