//! Opens each of the three standard streams that was closed when the command started, so that no file
//! or socket gets the number of one.
#![allow(unsafe_code, reason = "whether a descriptor is open has no safe question")]

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd as _;

use nix::libc;

/// Opens `/dev/null` for each standard stream that this process was started without, as Rust does for programs of its
/// own: otherwise the next file or socket would become one, and the command under `run` would have it.
pub(crate) fn open_missing() {
    for stream in 0..3 {
        // SAFETY: any number may be asked about.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1
            && let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null")
        {
            // The system gives out the lowest number that is free.
            let _ = null.into_raw_fd();
        }
    }
}
