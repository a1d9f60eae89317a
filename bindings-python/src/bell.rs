//! A file descriptor that becomes readable when it is rung: how the engine wakes an event loop.

#[cfg(unix)]
pub(crate) use unix::Bell;
#[cfg(not(unix))]
pub(crate) use without::Bell;

#[cfg(unix)]
mod unix {
    use std::io::{self, Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// A pair of connected sockets.
    pub(crate) struct Bell {
        rope: UnixStream,
        ear: UnixStream,
    }

    impl Bell {
        pub(crate) fn new() -> io::Result<Self> {
            let (rope, ear) = UnixStream::pair()?;
            rope.set_nonblocking(true)?;
            ear.set_nonblocking(true)?;
            Ok(Self { rope, ear })
        }

        pub(crate) fn fileno(&self) -> i32 {
            self.ear.as_raw_fd()
        }

        pub(crate) fn ring(&self) {
            // A full buffer rings already.
            let _ = (&self.rope).write(&[1]);
        }

        /// Takes back every ring so far.
        pub(crate) fn hush(&self) {
            let mut rings = [0; 64];
            while matches!((&self.ear).read(&mut rings), Ok(count) if count == rings.len()) {}
        }
    }
}

#[cfg(not(unix))]
mod without {
    use std::io;

    /// Event loops of this system watch no file descriptors: they are woken from a thread.
    pub(crate) struct Bell;

    impl Bell {
        pub(crate) fn new() -> io::Result<Self> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        pub(crate) fn fileno(&self) -> i32 {
            -1
        }

        pub(crate) fn ring(&self) {}

        pub(crate) fn hush(&self) {}
    }
}
