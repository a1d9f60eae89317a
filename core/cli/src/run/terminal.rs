//! The terminal that this process was started from, and which job is in its foreground. Knows no
//! lock.

use std::fs::{File, OpenOptions};
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

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
        // The system would stop a process in the background for that, were the signal not blocked.
        let mut before = SigSet::empty();
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before));
        // A terminal that has hung up has no foreground.
        let _ = tcsetpgrp(self.device.as_fd(), group);
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }

    /// Puts the job of this process into the foreground again.
    pub(super) fn take_back(&self) {
        self.give(getpgrp());
    }

    /// Sets the modes that it had: a program that was ended in the middle has left its own. Waits for no output, which may
    /// stand still after Ctrl-S.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = self.modes {
            let _ = tcsetattr(&self.device, SetArg::TCSANOW, &modes.into());
        }
    }

    /// The controlling terminal, if this process is in its foreground and is no part of a pipeline,
    /// whose other processes would be in the background.
    pub(super) fn in_foreground_alone() -> Option<Self> {
        Self::open().filter(|terminal| !is_in_pipeline() && terminal.is_ours())
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.device.as_fd()).ok()
    }
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
