//! Messages on standard error. Owns which thread writes them: a standard error that takes nothing, as a
//! terminal after Ctrl-S, must not keep `run` from renewing its lock or from ending its command.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anstream::ColorChoice;
use anstream::adapter::strip_str;

/// A thread that writes messages.
struct Writer {
    lines: SyncSender<String>,
    unwritten: Arc<Unwritten>,
}

/// How many lines wait to be written.
#[derive(Default)]
struct Unwritten {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Unwritten {
    fn change(&self, change: impl FnOnce(&mut usize)) {
        change(&mut self.count.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait(&self, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // If the time is over, the lines are not written.
        let _ = self.changed.wait_timeout_while(count, limit, |count| *count > 0);
    }
}

/// From now on, messages are written by a thread of their own, and [`write`] waits for nothing.
#[cfg_attr(
    not(unix),
    allow(dead_code, reason = "only `run` keeps a lock, and needs a Unix system")
)]
pub(crate) fn write_apart() -> io::Result<()> {
    let (lines, queue) = sync_channel(MOST);
    let unwritten = Arc::new(Unwritten::default());
    let of_thread = Arc::clone(&unwritten);
    thread::Builder::new()
        .name("quorlock-messages".into())
        .spawn(move || write_all(&queue, &of_thread))?;
    let _ = WRITER.set(Writer { lines, unwritten });
    Ok(())
}

/// Writes the lines until the process ends.
fn write_all(queue: &Receiver<String>, unwritten: &Unwritten) {
    #[cfg(unix)]
    write_in_background();
    for line in queue {
        write_here(&line);
        unwritten.change(|count| *count -= 1);
    }
}

/// Lets this thread write to a terminal from the background. With `stty tostop` the system would stop the process for
/// that, were the signal not blocked, and nobody would renew the lock.
#[cfg(unix)]
fn write_in_background() {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None);
}

/// Writes a line, on the thread for that if there is one. Where that has many lines to write already, this one is lost.
pub(super) fn write(line: String) {
    let Some(Writer { lines, unwritten }) = WRITER.get() else {
        return write_here(&line);
    };
    unwritten.change(|count| *count += 1);
    if lines.try_send(line).is_err() {
        unwritten.change(|count| *count -= 1);
    }
}

fn write_here(line: &str) {
    let mut stream = anstream::stderr();
    let mut text = format!("{line}\n");
    // The stream would write what stands between the escapes piece by piece, and others may write in between.
    if stream.current_choice() == ColorChoice::Never {
        text = strip_str(&text).to_string();
    }
    // Without a standard error nobody can be told.
    let _ = stream.write_all(text.as_bytes());
}

/// Waits for a moment until all messages are written. To be called before the process ends, when it keeps no lock and no
/// command any more.
pub(crate) fn finish() {
    if let Some(writer) = WRITER.get() {
        writer.unwritten.wait(LAST);
    }
}

static WRITER: OnceLock<Writer> = OnceLock::new();
/// How many lines wait at the most.
const MOST: usize = 1000;
/// How long the end of the process waits for a standard error that takes nothing.
const LAST: Duration = Duration::from_secs(1);
