//! The admin port beyond loopback: TLS with the certificate of the process, and deadlines for handshakes.

use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_admin::access::{Access, Rules};
use plimsoll_admin::server;
use plimsoll_core::exchange::PeerRole;
use plimsoll_proto::transport::Connections;
use plimsoll_tls::rustls::ClientConfig;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::tokio_rustls::TlsConnector;
use plimsoll_tls::{Certificates, Tier, operator_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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
        pending(),
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

fn failures(connections: &Connections, label: &str) -> u64 {
    connections
        .failed_handshakes()
        .get(label)
        .copied()
        .unwrap_or(0)
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
    until(|| failures(&connections, "unknown_authority") == 1).await;
    assert!(fs::exists(directory.path().join("tls.key")).unwrap());
}

#[tokio::test]
async fn plain_http_is_refused_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let connections = Connections::new(64, 64);
    let address = start(directory.path(), connections.clone()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        !String::from_utf8_lossy(&answer).contains("alive"),
        "{answer:?}"
    );
    until(|| failures(&connections, "not_tls") == 1).await;
}

/// The clock is a virtual one, which passes while every task waits.
#[tokio::test(start_paused = true)]
async fn failed_handshake_returns_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let connections = Connections::new(4, 4);
    let address = start(directory.path(), connections.clone()).await;
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    until(|| connections.counts().pending == 2).await;
    // Half of a record, which a handshake waits for.
    silent[0].write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    for stream in &mut silent {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    until(|| connections.counts().pending == 0).await;
    assert_eq!(failures(&connections, "other"), 2);
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
