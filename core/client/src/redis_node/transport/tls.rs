//! The TLS handshake. Owns which certificates are trusted, by the address's options; knows nothing of Redis.

use std::io;
use std::sync::{Arc, OnceLock};

use quorlock_protocol::{Fault, FaultKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::faults;
use crate::address::{Tls, Verification};

/// Speaks TLS over `stream` to `host`.
pub(super) async fn handshake(
    tls: &Tls,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Fault> {
    let name = tls.server_name().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name)
        .map_err(|_| fault("the host's name cannot stand in a certificate".to_owned()))?;
    let system = system_authorities().await;
    let config = config(tls, system).map_err(|error| fault(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| failed(&error))
}

/// The certificate that the server has shown, in DER.
pub(super) fn certificate(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let (_, session) = stream.get_ref();
    Some(session.peer_certificates()?.first()?.to_vec())
}

fn config(tls: &Tls, system: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    // A provider of our own: the process that uses this library may have set another one as its
    // default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match tls.verification() {
        Verification::Full => builder.with_root_certificates(trusted(tls, system)),
        lax => builder.dangerous().with_custom_certificate_verifier(Arc::new(Lax {
            roots: (lax == Verification::DangerAnyHost).then(|| trusted(tls, system)),
            provider,
        })),
    };
    match tls.identity().cloned() {
        Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn trusted(tls: &Tls, system: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system.iter().cloned());
    roots.add_parsable_certificates(tls.extra_authorities().iter().cloned());
    roots
}

/// The authorities that the operating system trusts, read once. On a system without a store, or
/// with broken entries in it, the address's own authorities may still be enough.
async fn system_authorities() -> &'static [CertificateDer<'static>] {
    static AUTHORITIES: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    if let Some(known) = AUTHORITIES.get() {
        return known;
    }
    // It reads files, which must not delay the renewals on the same thread.
    let read = spawn_blocking(|| rustls_native_certs::load_native_certs().certs).await;
    AUTHORITIES.get_or_init(|| read.unwrap_or_default())
}

fn failed(error: &io::Error) -> Fault {
    fault_in(error).unwrap_or_else(|| {
        // This is no fault of TLS: the connection itself broke, or the server closed it on TLS
        // bytes.
        let words = format!("the TLS handshake was cut off: {}", faults::io_words(error));
        Fault::new(FaultKind::NotSent, words)
    })
}

/// The TLS fault behind an error of a stream. It may come only with the first reply: a server that
/// wants a client certificate finds out after the client's part of the handshake has ended.
pub(super) fn fault_in(error: &io::Error) -> Option<Fault> {
    use CertificateError as C;
    let words = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(problem) => match problem {
            // The signature does not match if the authority has a new key under its old name.
            C::UnknownIssuer | C::BadSignature => {
                "the node's certificate is signed by an authority that is not trusted here: give \
                 its CA certificate (ssl_ca_certs)"
                    .to_owned()
            }
            C::NotValidForName | C::NotValidForNameContext { .. } => {
                "the node's certificate is for another host".to_owned()
            }
            C::Expired | C::ExpiredContext { .. } => {
                "the node's certificate has expired".to_owned()
            }
            C::NotValidYet | C::NotValidYetContext { .. } => {
                "the node's certificate is not valid yet: is this machine's clock right?".to_owned()
            }
            other => format!("the node's certificate is not acceptable: {other}"),
        },
        rustls::Error::InvalidMessage(_) => "the node does not speak TLS on this port".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            let alert = format!("{alert:?}");
            format!("the node refused the handshake ({alert}): does it want a client certificate?")
        }
        other => other.to_string(),
    };
    Some(fault(words))
}

fn fault(words: String) -> Fault {
    Fault::new(FaultKind::Tls, words)
}

/// Accepts any host with a certificate of the trusted authorities, or (without `roots`) any certificate at all.
#[derive(Debug)]
struct Lax {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lax {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
