//! The TLS settings of an address: how the node and the client prove who they are. Owns the PEM
//! texts; makes no handshake.

use std::fmt;
use std::fs;
use std::path::Path;

use quorlock_protocol::ConfigError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How a connection is encrypted, and who is trusted.
///
/// By default it trusts the certificate authorities of the operating system and presents no
/// certificate of its own.
///
/// ```no_run
/// use quorlock::{Address, Tls};
///
/// let tls = Tls::default().with_ca_file("/etc/redis/ca.crt")?;
/// let address = Address::tcp("cache.example", 6380)?.with_tls(tls)?;
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    extra_authorities: Vec<CertificateDer<'static>>,
    identity: Option<Identity>,
    verification: Verification,
    server_name: Option<String>,
}

/// What is required of the node's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// Signed by a trusted authority, for the host that is connected to.
    #[default]
    Full,
    /// Signed by a trusted authority, for any host.
    DangerAnyHost,
    /// Nothing: anybody who can redirect the traffic can pretend to be the node.
    DangerNone,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Tls {
    /// Trust the authorities in `pem` beside those of the operating system.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no certificate in it.
    pub fn with_ca_pem(mut self, pem: &[u8]) -> Result<Self, ConfigError> {
        self.extra_authorities.extend(certificates(pem, "the CA certificates")?);
        Ok(self)
    }

    /// [`Self::with_ca_pem`] from a file, which is read now.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or holds no certificate.
    pub fn with_ca_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let pem = read(path.as_ref())?;
        self.with_ca_pem(&pem)
    }

    /// Presents this certificate (with the chain below its authority) to nodes that ask for one.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no certificate in the one or no private key in the other.
    pub fn with_identity_pem(mut self, chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let chain = certificates(chain, "the client certificate")?;
        // The parser's own message is left out: it might quote the key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            ConfigError::new("the client key holds no unencrypted private key in PEM")
        })?;
        self.identity = Some(Identity { chain, key });
        Ok(self)
    }

    /// [`Self::with_identity_pem`] from files, which are read now.
    ///
    /// # Errors
    /// [`ConfigError`] if a file cannot be read or does not hold what it should.
    pub fn with_identity_files(
        self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, ConfigError> {
        let (chain, key) = (read(chain.as_ref())?, read(key.as_ref())?);
        self.with_identity_pem(&chain, &key)
    }

    /// What is required of the node's certificate.
    #[must_use]
    pub fn with_verification(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// Expect a certificate for this name instead of the host that is connected to.
    #[must_use]
    pub fn with_server_name(self, name: &str) -> Self {
        Self { server_name: Some(name.to_owned()), ..self }
    }

    pub(crate) fn extra_authorities(&self) -> &[CertificateDer<'static>] {
        &self.extra_authorities
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(crate) fn verification(&self) -> Verification {
        self.verification
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

impl fmt::Debug for Tls {
    /// Written by hand, so that no key is ever shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("extra_authorities", &self.extra_authorities.len())
            .field("identity", &self.identity.is_some())
            .field("verification", &self.verification)
            .field("server_name", &self.server_name)
            .finish()
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let list = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match list {
        Ok(list) if !list.is_empty() => Ok(list),
        _ => Err(ConfigError::new(format!("{what} hold no readable certificate in PEM"))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path)
        .map_err(|error| ConfigError::new(format!("cannot read '{}': {error}", path.display())))
}
