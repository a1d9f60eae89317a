//! Tests TLS between a Redis node and its server: which certificates are trusted, and how a refusal
//! reads.

mod support;

use std::fs;
use std::sync::Arc;

use quorlock::{Address, NodeSettings, NodeState, Tls, Verification, connect};
use quorlock_protocol::{Action, Answer, Fault, FaultKind, Place, Waiter};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use support::server::Server;
use support::*;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;

#[test]
fn a_certificate_of_a_trusted_authority_is_accepted() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1", "localhost"], false).await;
        for host in ["127.0.0.1", "localhost"] {
            let tls = Tls::default().with_ca_pem(front.authority.pem().as_bytes()).unwrap();
            let mut client = front.client(host, tls);
            let mine = claim(&["r"], "a");
            assert_eq!(client.ask(&mine, fenced(60_000, 5)).await.map(|_| ()), Ok(()));
            assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
        }
    });
}

#[test]
fn the_authority_can_be_named_in_the_address() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1"], false).await;
        let path = front.server.folder().join("ca.pem");
        fs::write(&path, front.authority.pem()).unwrap();
        let url = format!("rediss://127.0.0.1:{}?ssl_ca_certs={}", front.port, path.display());
        assert_eq!(node_at(&url).grant(&claim(&["r"], "a"), 1_000).await, OURS);
    });
}

#[test]
fn places_in_queues_are_taken_over_tls() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1"], false).await;
        let tls = Tls::default().with_ca_pem(front.authority.pem().as_bytes()).unwrap();
        let mut client = front.client("127.0.0.1", tls);
        let place = Place { arrived: 1, waiter: Waiter { process: 1, number: 1 } };
        let mine = claim(&["r"], "a");
        let Ok(Answer::Queued { queued, .. }) = client.ask(&mine, Action::Enqueue { place }).await
        else {
            panic!("no place")
        };
        assert!(queued.is_turn() && queued.is_told, "{queued:?}");
        assert_eq!(client.ask(&mine, Action::CountWaiters).await, Ok(Answer::Waiters(1)));
        assert_eq!(client.ask(&mine, Action::Leave { place }).await, Ok(Answer::Done));
        let stranger = Tls::default().with_ca_pem(Authority::new().pem().as_bytes()).unwrap();
        let mut client = front.client("127.0.0.1", stranger);
        let fault = client.fault(&mine, Action::Enqueue { place }).await;
        assert_eq!(fault.kind(), FaultKind::Tls, "{fault}");
    });
}

#[test]
fn an_unknown_authority_is_refused_with_advice() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1"], false).await;
        let other = Authority::new();
        let stranger = Tls::default().with_ca_pem(other.pem().as_bytes()).unwrap();
        for tls in [Tls::default(), stranger] {
            let fault = front.refusal("127.0.0.1", tls).await;
            assert_eq!(fault.kind(), FaultKind::Tls);
            assert!(fault.detail().contains("authority that is not trusted here"), "{fault}");
            assert!(fault.detail().contains("ssl_ca_certs"), "{fault}");
        }
    });
}

#[test]
fn a_certificate_for_another_host_is_refused_by_default() {
    run(async {
        let front = Front::start(Authority::new(), &["cache.example"], false).await;
        let tls = Tls::default().with_ca_pem(front.authority.pem().as_bytes()).unwrap();
        let fault = front.refusal("127.0.0.1", tls.clone()).await;
        assert_eq!(fault.kind(), FaultKind::Tls);
        assert_eq!(fault.detail(), "the node's certificate is for another host");
        let mine = claim(&["r"], "a");
        for lax in [
            tls.clone().with_server_name("cache.example"),
            tls.with_verification(Verification::DangerAnyHost),
        ] {
            let mut client = front.client("127.0.0.1", lax);
            assert_eq!(client.grant(&mine, 60_000).await, OURS);
            assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
        }
        // Any host, but not any authority.
        let stranger = Tls::default().with_verification(Verification::DangerAnyHost);
        assert_eq!(front.refusal("127.0.0.1", stranger).await.kind(), FaultKind::Tls);
        let anybody = format!("rediss://127.0.0.1:{}?ssl_cert_reqs=none", front.port);
        assert_eq!(node_at(&anybody).grant(&mine, 1_000).await, OURS);
    });
}

#[test]
fn a_client_certificate_is_shown_when_asked_for() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1"], true).await;
        let tls = Tls::default().with_ca_pem(front.authority.pem().as_bytes()).unwrap();
        let fault = front.refusal("127.0.0.1", tls.clone()).await;
        assert_eq!(fault.kind(), FaultKind::Tls, "{fault}");
        assert!(fault.detail().contains("does it want a client certificate?"), "{fault}");
        let (chain, key) = front.authority.certify(&["client"]);
        let known = tls.with_identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(front.client("127.0.0.1", known).grant(&claim(&["r"], "a"), 1_000).await, OURS);
        // As files, both in one.
        let (ca, both) = (front.server.folder().join("ca"), front.server.folder().join("both"));
        fs::write(&ca, front.authority.pem()).unwrap();
        fs::write(&both, chain + &key).unwrap();
        let query = format!("ssl_ca_certs={}&ssl_certfile={}", ca.display(), both.display());
        let url = format!("rediss://127.0.0.1:{}?{query}", front.port);
        assert_eq!(node_at(&url).grant(&claim(&["s"], "a"), 1_000).await, OURS);
    });
}

#[test]
fn tls_on_one_side_only_is_told() {
    run(async {
        let front = Front::start(Authority::new(), &["127.0.0.1"], false).await;
        let address: Address =
            format!("rediss://127.0.0.1:{}", front.server.port()).parse().unwrap();
        // The server waits for the rest of what it takes for a command.
        let fault = down(&address, &NodeSettings::default()).await;
        assert!(fault.detail().contains("speak TLS on this port"), "{fault}");
        let address: Address = format!("redis://127.0.0.1:{}", front.port).parse().unwrap();
        let fault = down(&address, &patient()).await;
        assert!(fault.detail().contains("is TLS (rediss://) spoken"), "{fault}");
    });
}

#[test]
fn unusable_certificates_are_refused_when_the_address_is_made() {
    let authority = Authority::new();
    let (chain, key) = authority.certify(&["x"]);
    for problem in [
        Tls::default().with_ca_pem(b"nonsense").unwrap_err(),
        Tls::default().with_ca_pem(key.as_bytes()).unwrap_err(),
        Tls::default().with_identity_pem(chain.as_bytes(), b"nonsense").unwrap_err(),
        Tls::default().with_identity_pem(b"nonsense", key.as_bytes()).unwrap_err(),
        Tls::default().with_identity_pem(chain.as_bytes(), chain.as_bytes()).unwrap_err(),
    ] {
        let sentence = problem.to_string();
        assert!(sentence.contains("in PEM"), "{sentence}");
    }
    let tls = Tls::default().with_identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert!(!format!("{tls:?}").contains("PRIVATE"), "{tls:?}");
}

/// A certificate authority of the test's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `names` and its key, in PEM.
    fn certify(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// TLS in front of a plain server, so that any server will do.
struct Front {
    port: u16,
    authority: Authority,
    server: Server,
}

impl Front {
    async fn start(authority: Authority, names: &[&str], wants_client: bool) -> Self {
        let server = Server::start();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config(&authority, names, wants_client)));
        let behind = server.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(client).await else {
                        return;
                    };
                    let mut server = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
                    // However it ends, it has ended.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, authority, server }
    }

    fn address(&self, host: &str, tls: Tls) -> Address {
        Address::tcp(host, self.port).unwrap().with_tls(tls).unwrap()
    }

    fn client(&self, host: &str, tls: Tls) -> Client {
        let address = self.address(host, tls);
        Client::new(connect(&address, &patient(), &Handle::current()))
    }

    async fn refusal(&self, host: &str, tls: Tls) -> Fault {
        down(&self.address(host, tls), &patient()).await
    }
}

fn config(authority: &Authority, names: &[&str], wants_client: bool) -> ServerConfig {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = authority.certify(names);
    let chain = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(vec![chain], key).unwrap()
}

/// Why the node at `address` cannot be used.
async fn down(address: &Address, settings: &NodeSettings) -> Fault {
    let node = connect(address, settings, &Handle::current());
    node.settled().await;
    assert!(matches!(node.state(), NodeState::Down(_)), "{address}");
    Client::new(node).fault(&claim(&["r"], "a"), grant(1_000)).await
}
