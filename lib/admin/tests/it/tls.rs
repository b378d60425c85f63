//! The admin port beyond loopback: TLS with the certificate of the process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_admin::access::{Access, Rules};
use plimsoll_admin::server;
use plimsoll_core::exchange::PeerRole;
use plimsoll_net::Connections;
use plimsoll_tls::rustls::ClientConfig;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::tokio_rustls::TlsConnector;
use plimsoll_tls::{Certificates, Tier, operator_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

async fn start(directory: &Path, connections: Connections) -> SocketAddr {
    Authority::new("test.example").write(directory, PeerRole::Controller, Validity::default());
    let certificates = Some(Certificates::open(directory).unwrap());
    let access = Access::new(Rules {
        certificates,
        ..Rules::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = server::routes(Vec::new, || true);
    tokio::spawn(server::serve(
        listener,
        connections,
        access,
        routes,
        CancellationToken::new(),
    ));
    address
}

async fn ask(address: SocketAddr, config: ClientConfig) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let name = "controller.example".try_into().unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn admin_port_trusts_only_its_authority() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let connections = Connections::new(64, 64);
    let address = start(directory.path(), connections.clone()).await;
    let answer = ask(
        address,
        operator_client(&directory.path().join("ca.crt"), Tier::Controller).unwrap(),
    )
    .await
    .unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 200") && answer.ends_with("alive\n"),
        "{answer}"
    );

    Authority::new("test.example").write(other.path(), PeerRole::Controller, Validity::default());
    let foreign = operator_client(&other.path().join("ca.crt"), Tier::Controller).unwrap();
    let error = ask(address, foreign).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    until(|| connections.failed_handshakes()["unknown_authority"] == 1).await;
    assert!(fs::exists(directory.path().join("tls.key")).unwrap());
}

async fn until(is_reached: impl Fn() -> bool) {
    let polls = async {
        while !is_reached() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), polls)
        .await
        .unwrap();
}
