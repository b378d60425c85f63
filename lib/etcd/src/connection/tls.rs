//! TLS towards the store. Its certificates are the operator's own, so servers are verified by host
//! name or IP address, not by the identities of Plimsoll's tiers.
//!
//! The files are read for each connection, so that renewed certificates need no restart.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_tls::HandshakeFailure;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum size of a file of certificates or a key, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum wait after the handshake for the first bytes of a server: its greeting, or a refusal of the client's
/// certificate.
const GREETING_WAIT: Duration = Duration::from_millis(250);

/// The PEM files of connections to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that verify the servers.
    pub ca: PathBuf,
    /// Certificate and key of this client, if the servers ask for one.
    pub client: Option<ClientFiles>,
}

/// The PEM files that identify this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// Certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

/// Reason why a file of certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct TlsError {
    path: PathBuf,
    cause: String,
}

impl TlsFiles {
    /// Checks that the files can be used, so that a faulty one is found at start.
    ///
    /// # Errors
    /// Names the first file that cannot be used, and says why.
    pub fn check(&self) -> Result<(), TlsError> {
        self.config().map(|_| ())
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.ca)? {
            roots.add(authority).map_err(fault(&self.ca))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(fault(&self.ca))?
            .with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(ClientFiles { certificate, key }) => {
                let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(fault(key))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private)
                    .map_err(fault(certificate))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    pub(super) async fn handshake(
        self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = tokio::task::spawn_blocking(move || self.config()).await;
        let config = config
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let failed = |error| io::Error::other(HandshakeFailure::of(&error));
        let mut stream = connecting.await.map_err(failed)?;
        // With TLS 1.3 a server refuses the certificate of a client only after the handshake. etcd
        // greets at once; a proxy may wait for the client to greet first.
        if let Ok(greeting) = timeout(GREETING_WAIT, stream.fill_buf()).await {
            greeting.map_err(failed)?;
        }
        Ok(stream)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(fault(path))?;
    if found.is_empty() {
        return Err(fault(path)("it has no certificate in PEM"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(fault(path))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content);
    if read.map_err(fault(path))? as u64 > FILE_BYTES_MAX {
        return Err(fault(path)("the file is longer than 1 MiB"));
    }
    Ok(content)
}

fn fault<E: ToString>(path: &Path) -> impl Fn(E) -> TlsError {
    let path = path.to_owned();
    move |cause| TlsError {
        path: path.clone(),
        cause: cause.to_string(),
    }
}
