//! A hop that checks nothing, between real processes: a child without certificates shows any certificate through
//! it, and a parent without certificates does.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_tls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use plimsoll_tls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use plimsoll_tls::rustls::pki_types::pem::PemObject;
use plimsoll_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use plimsoll_tls::rustls::version::TLS13;
use plimsoll_tls::rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use plimsoll_tls::tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const HTTP_2: &[u8] = b"h2";

/// The hop, until it is dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl Proxy {
    /// Speaks TLS to `parent` for plaintext children, with the certificate in a directory or with none.
    pub(super) fn for_children(parent: SocketAddr, certificate: Option<&Path>) -> Self {
        let config = client_config(certificate);
        Self::run(move |mut child| {
            let connector = TlsConnector::from(Arc::clone(&config));
            async move {
                let stream = TcpStream::connect(parent).await?;
                let mut parent = connector.connect(ServerName::from(parent.ip()), stream).await?;
                copy_bidirectional(&mut child, &mut parent).await.map(drop)
            }
        })
    }

    /// Speaks TLS to children for a plaintext `parent`, with the certificate in a directory.
    pub(super) fn for_parent(parent: SocketAddr, certificate: &Path) -> Self {
        let config = server_config(certificate);
        Self::run(move |child| {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            async move {
                let mut child = acceptor.accept(child).await?;
                let mut parent = TcpStream::connect(parent).await?;
                copy_bidirectional(&mut child, &mut parent).await.map(drop)
            }
        })
    }

    fn run<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A failure closes both connections, which their ends report.
                tokio::spawn(serve(stream));
            }
        });
        Self { address, _runtime: runtime }
    }
}

fn client_config(certificate: Option<&Path>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(ring::default_provider())));
    let mut config = match certificate {
        Some(directory) => {
            let (chain, key) = pair(directory);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    Arc::new(config)
}

fn server_config(certificate: &Path) -> Arc<ServerConfig> {
    let (chain, key) = pair(certificate);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    Arc::new(config)
}

fn pair(directory: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(directory.join("tls.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("tls.key")).unwrap();
    (chain.map(Result::unwrap).collect(), key)
}

/// Accepts every certificate of a server.
#[derive(Debug)]
struct AnyServer(CryptoProvider);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is enabled".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
