//! Converts a node from JavaScript (a URL, or an object of parts) into an address of the core. Owns
//! the checks of the parts.

use napi::Either;
use napi_derive::napi;
use quorlock::{Address, ConfigError, Tls, Verification};

use crate::numbers::Js;

/// A node in parts; either `path` or `host` and `port`.
#[napi(object, object_to_js = false)]
pub struct NodeSpec {
    /// The host, a name or an IP address.
    pub host: Option<String>,
    /// The port; 6379 if absent.
    pub port: Option<f64>,
    /// The path of a unix socket.
    pub path: Option<String>,
    /// The user of an access list.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The database to select.
    pub db: Option<f64>,
    /// The prefix of every key on this node.
    pub key_prefix: Option<String>,
    /// Whether the server writes every change to disk before it answers, where it does not say so
    /// itself.
    pub durable: Option<bool>,
    /// Present if the node uses TLS.
    pub tls: Option<TlsSpec>,
}

/// The TLS settings; texts are PEM.
#[napi(object, object_to_js = false)]
pub struct TlsSpec {
    /// Authorities to trust beside those of the operating system.
    pub ca: Option<Vec<String>>,
    /// The certificate to present, with its chain.
    pub cert: Option<String>,
    /// Its private key.
    pub key: Option<String>,
    /// The name to expect in the node's certificate, if not the host's.
    pub servername: Option<String>,
    /// False to accept any certificate.
    pub reject_unauthorized: Option<bool>,
}

/// The core's address for what the user gave: a text, or parts.
pub(crate) fn read(node: Either<String, NodeSpec>) -> Result<Address, ConfigError> {
    match node {
        Either::A(text) => text.parse(),
        Either::B(spec) => spec.read(),
    }
}

impl NodeSpec {
    fn read(self) -> Result<Address, ConfigError> {
        let mut address = match (&self.path, &self.host) {
            (Some(path), _) => Address::unix(path)?,
            (None, host) => {
                let port = self.port.map_or(Ok(Address::DEFAULT_PORT), port)?;
                Address::tcp(host.as_deref().unwrap_or("localhost"), port)?
            }
        };
        address = address.with_login(self.username.as_deref(), self.password.as_deref());
        if let Some(db) = self.db {
            address = address.with_db(database(db)?);
        }
        if let Some(prefix) = &self.key_prefix {
            address = address.with_key_prefix(prefix);
        }
        address = address.with_durable(self.durable.unwrap_or(false));
        match self.tls {
            Some(tls) => address.with_tls(tls.read()?),
            None => Ok(address),
        }
    }
}

impl TlsSpec {
    fn read(self) -> Result<Tls, ConfigError> {
        let mut tls = Tls::default();
        for pem in self.ca.iter().flatten() {
            tls = tls.with_ca_pem(pem.as_bytes())?;
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls = tls.with_identity_pem(cert.as_bytes(), key.as_bytes())?;
            }
            (None, None) => {}
            _ => {
                return Err(ConfigError::new("tls.cert and tls.key must be given together"));
            }
        }
        if let Some(name) = &self.servername {
            tls = tls.with_server_name(name);
        }
        if self.reject_unauthorized == Some(false) {
            tls = tls.with_verification(Verification::DangerNone);
        }
        Ok(tls)
    }
}

fn port(port: f64) -> Result<u16, ConfigError> {
    integer(port, f64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok()).ok_or_else(|| {
        ConfigError::new(format!("the port of a node must be from 1 to 65535, not {}", Js(port)))
    })
}

fn database(db: f64) -> Result<u32, ConfigError> {
    integer(db, f64::from(i32::MAX)).ok_or_else(|| {
        ConfigError::new(format!(
            "the database of a node must be a number from 0 up, not {}",
            Js(db)
        ))
    })
}

fn integer(number: f64, most: f64) -> Option<u32> {
    if number.fract() != 0.0 || !(0.0..=most).contains(&number) {
        return None;
    }
    // In range by the check above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let number = number as u32;
    Some(number)
}
