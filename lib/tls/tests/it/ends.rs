//! Both ends of a connection in one process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_tls::rustls::pki_types::pem::PemObject;
use plimsoll_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use plimsoll_tls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use plimsoll_tls::rustls::{ClientConfig, HandshakeKind, ServerConfig};
use plimsoll_tls::testing::{Authority, Leaf, Validity};
use plimsoll_tls::tokio_rustls::rustls::crypto::ring::default_provider;
use plimsoll_tls::{Certificates, HandshakeFailure, Peer, accept, connect};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const DOMAIN: &str = "fleet.example";

pub(crate) fn aggregator() -> PeerRole {
    PeerRole::Aggregator {
        zone: Zone::new("eu-1").unwrap(),
    }
}

pub(crate) fn service() -> PeerRole {
    PeerRole::Service {
        zone: Zone::new("eu-1").unwrap(),
        service: Name::new("cart").unwrap(),
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) certificates: Certificates,
    pub(crate) directory: TempDir,
}

impl Process {
    pub(crate) fn new(authority: &Authority, role: PeerRole) -> Self {
        Self::with_leaf(
            authority,
            &authority.issue(&authority.request(role, Validity::default())),
        )
    }

    pub(crate) fn with_leaf(authority: &Authority, leaf: &Leaf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        authority.write_leaf(directory.path(), leaf);
        let certificates = Certificates::open(directory.path()).unwrap();
        Self {
            certificates,
            directory,
        }
    }

    /// Connects a child, over a new connection.
    pub(crate) async fn meet(&self, child: &Self) -> Met {
        meet(
            self.certificates.mutual_server(),
            child.certificates.child(),
        )
        .await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Returns an aggregator and a service of one authority.
pub(crate) fn pair(authority: &Authority) -> (Process, Process) {
    let aggregator = Process::new(authority, aggregator());
    (aggregator, Process::new(authority, service()))
}

/// Outcome of a handshake at each end.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) at_parent: Result<(Peer, HandshakeKind), HandshakeFailure>,
    pub(crate) at_child: Result<(Peer, HandshakeKind), HandshakeFailure>,
}

impl Met {
    /// Returns both labels; empty where the handshake succeeded.
    pub(crate) fn labels(&self) -> (&'static str, &'static str) {
        let label = |end: &Result<_, HandshakeFailure>| {
            end.as_ref().err().map_or("", HandshakeFailure::label)
        };
        (label(&self.at_parent), label(&self.at_child))
    }

    pub(crate) fn kinds(&self) -> (HandshakeKind, HandshakeKind) {
        (
            self.at_parent.as_ref().unwrap().1,
            self.at_child.as_ref().unwrap().1,
        )
    }
}

/// Connects a child to a parent, and sends a byte in each direction.
pub(crate) async fn meet(parent: Arc<ServerConfig>, child: Arc<ClientConfig>) -> Met {
    let (above, below) = tokio::io::duplex(16 << 10);
    let parent = async {
        let (mut stream, peer) = accept(parent, above).await?;
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        stream.write_all(b"p").await.unwrap();
        stream.flush().await.unwrap();
        Ok((peer, kind, stream))
    };
    let child = async {
        let name = ServerName::try_from("parent.example").unwrap();
        let (mut stream, peer) = connect(child, name, below).await?;
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"p");
        stream.write_all(b"c").await.unwrap();
        stream.flush().await.unwrap();
        Ok((peer, kind, stream))
    };
    let both = async { tokio::join!(parent, child) };
    let (parent, child) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("both ends return");
    let at_child = child.map(|(peer, kind, _)| (peer, kind));
    let at_parent = match parent {
        Err(failure) => Err(failure),
        Ok((peer, kind, mut stream)) => {
            let mut byte = [0];
            if at_child.is_ok() {
                stream.read_exact(&mut byte).await.unwrap();
                assert_eq!(&byte, b"c");
            }
            Ok((peer, kind))
        }
    };
    Met {
        at_parent,
        at_child,
    }
}

pub(crate) fn parent_with(config: &Arc<ServerConfig>, leaf: &Leaf) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(config);
    config.cert_resolver = resolver(leaf);
    Arc::new(config)
}

pub(crate) fn child_with(config: &ClientConfig, leaf: &Leaf) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.client_auth_cert_resolver = resolver(leaf);
    Arc::new(config)
}

fn resolver(leaf: &Leaf) -> Arc<SingleCertAndKey> {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    Arc::new(
        CertifiedKey::from_der(chain, key, &default_provider())
            .unwrap()
            .into(),
    )
}
