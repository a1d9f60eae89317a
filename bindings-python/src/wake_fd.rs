//! A file descriptor that becomes readable when the engine has completions for an event loop. Owns
//! the socket pair.

#[cfg(unix)]
pub(crate) use unix::WakeFd;
#[cfg(not(unix))]
pub(crate) use unsupported::WakeFd;

#[cfg(unix)]
mod unix {
    use std::io::{self, Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// A pair of connected sockets.
    pub(crate) struct WakeFd {
        writer: UnixStream,
        reader: UnixStream,
    }

    impl WakeFd {
        pub(crate) fn new() -> io::Result<Self> {
            let (writer, reader) = UnixStream::pair()?;
            writer.set_nonblocking(true)?;
            reader.set_nonblocking(true)?;
            Ok(Self { writer, reader })
        }

        pub(crate) fn fileno(&self) -> i32 {
            self.reader.as_raw_fd()
        }

        /// Makes it readable.
        pub(crate) fn wake(&self) {
            // If the buffer is full, it is readable already.
            let _ = (&self.writer).write(&[1]);
        }

        /// Makes it unreadable again.
        pub(crate) fn drain(&self) {
            let mut bytes = [0; 64];
            while matches!((&self.reader).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
    }
}

#[cfg(not(unix))]
mod unsupported {
    use std::io;

    /// Event loops of this system cannot watch file descriptors: a thread wakes them.
    pub(crate) struct WakeFd;

    impl WakeFd {
        pub(crate) fn new() -> io::Result<Self> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        pub(crate) fn fileno(&self) -> i32 {
            -1
        }

        pub(crate) fn wake(&self) {}

        pub(crate) fn drain(&self) {}
    }
}
