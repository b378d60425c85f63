//! Queries over TLS, with a certificate that is made for the test.

use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{GOOD, http, serving};
use crate::prometheus::{client, query, trusting};

/// Starts a server with its own certificate for `localhost`. Returns its URL and the store that
/// trusts it.
async fn serving_tls() -> (String, RootCertStore) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(&http("200 OK", GOOD)).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, roots)
}

#[tokio::test]
async fn trusted_server_answers_over_https() {
    let (url, roots) = serving_tls().await;
    let client = trusting(roots).build().unwrap();
    assert_eq!(query(&client, &url, "up").await.unwrap(), "700");
}

#[tokio::test]
async fn untrusted_https_server_is_unreachable() {
    let (url, _) = serving_tls().await;
    let error = query(&client().unwrap(), &url, "up")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("reached") && error.contains("certificate"),
        "{error}"
    );
    let (url, _request) = serving(http("200 OK", GOOD), false).await;
    let url = url.replace("http://", "https://");
    let error = query(&client().unwrap(), &url, "up")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("reached"), "{error}");
}

#[tokio::test]
async fn http_needs_no_system_certificates() {
    let (url, _request) = serving(http("200 OK", GOOD), false).await;
    let client = trusting(RootCertStore::empty()).build().unwrap();
    assert_eq!(query(&client, &url, "up").await.unwrap(), "700");
}
