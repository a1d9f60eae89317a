//! The address of a node and its log-in data. Owns the parts and how they are shown to people;
//! opens no connection.

mod options;
mod tls;
mod url;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use quorlock_protocol::ConfigError;

pub use tls::{Tls, Verification};

/// The address of a node, and how to log in there.
///
/// Read from text with [`str::parse`]:
///
/// | text | meaning |
/// |---|---|
/// | `redis://user:password@host:6379/1` | TCP; also `valkey://`; port 6379, database 0 by default |
/// | `rediss://host` | TLS; also `valkeys://` |
/// | `unix:///run/redis.sock?db=1` | a unix socket; also `redis+unix://`, or just `/run/redis.sock` |
/// | `host:6379`, `host`, `[::1]:6379` | TCP |
/// | `memory://name` | a node inside this process, shared by all who use the name, until the process ends |
/// | `memory://` | a node inside this process of the one manager's own, which begins without a key |
///
/// Characters such as `@`, `/` and `%` in a user name or password are written percent-encoded. The query
/// may hold `db`, `username`, `password`, `key_prefix`, `durable`, and for TLS `ssl_ca_certs`, `ssl_certfile`,
/// `ssl_keyfile` (paths of PEM files), `ssl_cert_reqs` (`required` or `none`) and `ssl_check_hostname`.
///
/// Neither `Display` nor `Debug` ever shows a password.
///
/// ```
/// use quorlock::Address;
///
/// let address: Address = "rediss://app:secret@cache.example/1".parse()?;
/// assert_eq!(address.to_string(), "rediss://cache.example:6379/1");
/// assert_eq!(address.endpoint(), "tcp:cache.example:6379");
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    place: Place,
    tls: Option<Tls>,
    username: Option<String>,
    password: Option<String>,
    db: u32,
    key_prefix: String,
    durable: bool,
}

/// What a connection is made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// Without a name: a node that belongs to one manager alone.
    Memory(Option<String>),
}

impl Address {
    /// The port of a Redis that names none.
    pub const DEFAULT_PORT: u16 = 6379;

    /// A Redis at `host` (a name, or an IP address without brackets) and `port`.
    ///
    /// # Errors
    /// [`ConfigError`] if the host is empty or holds characters that no host name has.
    pub fn tcp(host: &str, port: u16) -> Result<Self, ConfigError> {
        let unusable =
            |byte: char| byte.is_whitespace() || byte.is_control() || "/@?#[],=".contains(byte);
        if host.is_empty() {
            return Err(ConfigError::new("a node address must name a host"));
        }
        if host.contains(unusable) {
            return Err(ConfigError::new("the host of a node address holds an unusable character"));
        }
        // A link-local address may name its interface after a '%'.
        let is_ipv6 =
            |text: &str| Ipv6Addr::from_str(text.split('%').next().unwrap_or(text)).is_ok();
        if host.contains(':') && !is_ipv6(host) {
            return Err(ConfigError::new(
                "the host of a node address has colons but is no IPv6 address",
            ));
        }
        if port == 0 {
            return Err(ConfigError::new(format!(
                "port 0 of node '{host}' cannot be connected to"
            )));
        }
        Ok(Self::at(Place::Tcp { host: host.to_owned(), port }))
    }

    /// A Redis that listens on the unix socket at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] if the path is empty, or on systems without unix sockets.
    pub fn unix(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Err(ConfigError::new("a unix address must name the path of a socket"));
        }
        if !cfg!(unix) {
            return Err(ConfigError::new("unix sockets are not available on this system"));
        }
        Ok(Self::at(Place::Unix(path.to_owned())))
    }

    /// A node inside this process, shared by all managers that use the same `name`.
    ///
    /// # Errors
    /// [`ConfigError`] if the name is empty.
    pub fn memory(name: &str) -> Result<Self, ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::new("a memory address must have a name, as in memory://a"));
        }
        Ok(Self::at(Place::Memory(Some(name.to_owned()))))
    }

    /// A node inside this process that is never shared: each manager that has this address gets
    /// another one, which starts without a key and ends with the manager. For tests.
    pub fn own_memory() -> Self {
        Self::at(Place::Memory(None))
    }

    /// The database to select; 0 unless said otherwise.
    #[must_use]
    pub fn with_db(self, db: u32) -> Self {
        Self { db, ..self }
    }

    /// The user (of an access list) and password to log in with. An empty text counts as none.
    #[must_use]
    pub fn with_login(self, username: Option<&str>, password: Option<&str>) -> Self {
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Self { username: some(username), password: some(password), ..self }
    }

    /// What every key on this node begins with; nothing unless said otherwise.
    ///
    /// It is part of the address because clients whose settings are taken over have it there.
    #[must_use]
    pub fn with_key_prefix(self, key_prefix: &str) -> Self {
        Self { key_prefix: key_prefix.to_owned(), ..self }
    }

    /// Says that the server writes every change to disk before it answers (`appendonly yes` and
    /// `appendfsync always`), so that it forgets no lock in a restart.
    ///
    /// Not needed where the server answers `CONFIG GET`.
    #[must_use]
    pub fn with_durable(self, durable: bool) -> Self {
        Self { durable, ..self }
    }

    /// Speak TLS.
    ///
    /// # Errors
    /// [`ConfigError`] if the node is not reached over TCP.
    pub fn with_tls(self, tls: Tls) -> Result<Self, ConfigError> {
        match self.place {
            Place::Tcp { .. } => Ok(Self { tls: Some(tls), ..self }),
            _ => {
                Err(ConfigError::new(format!("node '{self}' is not on the network: no TLS there")))
            }
        }
    }

    /// What every key on this node begins with.
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Whether the user says that the server writes every change to disk before it answers.
    pub const fn is_durable(&self) -> bool {
        self.durable
    }

    /// The same text for all addresses that lead to the same server, whatever the login, database
    /// or notation. Two nodes of one lock must not share it: they would not be independent. (Nodes
    /// of `memory://` without a name are independent: each is another node.)
    pub fn endpoint(&self) -> String {
        match &self.place {
            Place::Tcp { host, port } => format!("tcp:{}:{port}", canonical_host(host)),
            Place::Unix(path) => format!("unix:{}", path.display()),
            Place::Memory(name) => format!("memory:{}", name.as_deref().unwrap_or_default()),
        }
    }

    /// Whether it is a node that belongs to one manager alone, so that no other address leads to
    /// it.
    pub(crate) const fn is_own(&self) -> bool {
        matches!(self.place, Place::Memory(None))
    }

    /// Its host and port, as servers name each other.
    pub(crate) fn host_and_port(&self) -> Option<Arc<str>> {
        match &self.place {
            Place::Tcp { host, port } => Some(join(host, *port)),
            Place::Unix(_) | Place::Memory(_) => None,
        }
    }

    /// Whether one connection serves both addresses: everything but the keys' prefix and the
    /// `durable` flag is the same.
    pub(crate) fn connects_as(&self, other: &Self) -> bool {
        let Self { place, tls, username, password, db, key_prefix: _, durable: _ } = self;
        (place, tls, username) == (&other.place, &other.tls, &other.username)
            && (password, db) == (&other.password, &other.db)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn db(&self) -> u32 {
        self.db
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            tls: None,
            username: None,
            password: None,
            db: 0,
            key_prefix: String::new(),
            durable: false,
        }
    }
}

impl FromStr for Address {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        url::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port } => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                if host.contains(':') {
                    write!(formatter, "{scheme}://[{host}]:{port}")?;
                } else {
                    write!(formatter, "{scheme}://{host}:{port}")?;
                }
                if self.db == 0 { Ok(()) } else { write!(formatter, "/{}", self.db) }
            }
            Place::Unix(path) => {
                write!(formatter, "unix://{}", path.display())?;
                if self.db == 0 { Ok(()) } else { write!(formatter, "?db={}", self.db) }
            }
            Place::Memory(name) => {
                write!(formatter, "memory://{}", name.as_deref().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Address {
    /// Written by hand, so that a new field cannot show a password by accident.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({self})")
    }
}

/// A host and a port in one text, the same for every notation of them.
pub(crate) fn join(host: &str, port: u16) -> Arc<str> {
    let host = canonical_host(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }.into()
}

fn canonical_host(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host == "localhost" {
        return "127.0.0.1".to_owned();
    }
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host,
    }
}

#[cfg(test)]
mod tests;
