//! Finds the descriptor on which a runtime waits, for event loops that wait on it too. Linux only.

use std::fs;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;

use tokio::net::UnixDatagram;

/// The epoll descriptor of the runtime whose context this is called in; `None` where it cannot be told.
///
/// The runtime keeps it to itself, so it gets a socket to watch, and the kernel is asked who watches it.
pub(super) fn descriptor() -> Option<RawFd> {
    let marker = UnixDatagram::unbound().ok()?;
    let marker = marker.as_raw_fd().to_string();
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    entries.flatten().find_map(|entry| {
        let is_epoll = fs::read_link(entry.path()).ok()? == Path::new("anon_inode:[eventpoll]");
        let name = entry.file_name();
        let watched = fs::read_to_string(Path::new("/proc/self/fdinfo").join(&name)).ok()?;
        (is_epoll && watches(&watched, &marker)).then(|| name.to_str()?.parse().ok())?
    })
}

/// Whether an epoll descriptor that the kernel describes so watches the descriptor `marker`.
fn watches(description: &str, marker: &str) -> bool {
    description.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("tfd:") && words.next() == Some(marker)
    })
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn each_runtime_has_its_own() {
        let build = || Builder::new_current_thread().enable_all().build().unwrap();
        let runtimes = [build(), build()];
        let found = runtimes.each_ref().map(|runtime| {
            let _context = runtime.enter();
            descriptor().unwrap()
        });
        assert_ne!(found[0], found[1]);
    }

    #[test]
    fn the_marker_is_a_whole_word() {
        let description = "pos:\t0\ntfd:       12 events: 80000019 data: 1  pos:0 ino:1 sdev:9\n";
        assert!(watches(description, "12"));
        assert!(!watches(description, "1"));
        assert!(!watches(description, "0"));
    }
}
