//! The ports beyond loopback: the rate limit service asks for a certificate of the fleet, HTTP for none.

use std::path::Path;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_tls::rustls::ClientConfig;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::tokio_rustls::TlsConnector;
use plimsoll_tls::tokio_rustls::client::TlsStream as ClientStream;
use plimsoll_tls::{Tier, operator_client};

use super::*;

/// Issues a certificate. The port has that of an aggregator, because the configuration of a child asks for one.
fn certificates(authority: &Authority, directory: &Path, is_port: bool) -> Certificates {
    let zone = Zone::new("eu-1a").unwrap();
    let role = if is_port {
        PeerRole::Aggregator { zone }
    } else {
        PeerRole::Service { zone, service: Name::new("envoy").unwrap() }
    };
    authority.write(directory, role, Validity::default());
    Certificates::open(directory).unwrap()
}

async fn dial(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<ClientStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    TlsConnector::from(config).connect("sidecar.example".try_into().unwrap(), stream).await
}

/// Sends a request over HTTP/2 and TLS.
async fn ask(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<String> {
    let stream = dial(to, config).await?;
    let (mut sender, connection) =
        client2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let response = sender.send_request(post(full("asked"))).await.map_err(io::Error::other)?;
    Ok(text(response).await)
}

#[tokio::test]
async fn rate_limit_service_takes_certificates_of_the_fleet_alone() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    let (authority, other) = (Authority::new("a.example"), Authority::new("a.example"));
    let port = certificates(&authority, &of("port"), true);
    let echo = Echo::start(Protection::Mutual(port)).await;
    let envoy = certificates(&authority, &of("envoy"), false).child();
    assert_eq!(ask(echo.http2, envoy).await.unwrap(), "asked");

    let mut none = operator_client(&of("port").join("ca.crt"), Tier::Aggregator).unwrap();
    none.alpn_protocols = vec![b"h2".to_vec()];
    let foreign = certificates(&other, &of("foreign"), false);
    for (name, config) in [("of another authority", foreign.child()), ("none", Arc::new(none))] {
        // A client of TLS 1.3 learns of the refusal with its first read.
        assert!(ask(echo.http2, config).await.is_err(), "{name}");
    }
    let plain = TcpStream::connect(echo.http2).await.unwrap();
    let (mut sender, connection) =
        client2::handshake(TokioExecutor::new(), TokioIo::new(plain)).await.unwrap();
    tokio::spawn(connection);
    assert!(sender.send_request(post(full("plaintext"))).await.is_err());
    until(|| echo.connections.failed_handshakes().values().sum::<u64>() == 3).await;
}

#[tokio::test]
async fn http_asks_for_no_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("a.example");
    let port = certificates(&authority, directory.path(), true);
    let echo = Echo::start(Protection::Tls(port)).await;
    let config = operator_client(&directory.path().join("ca.crt"), Tier::Aggregator).unwrap();
    let stream = dial(echo.http1, Arc::new(config)).await.unwrap();
    let (mut sender, connection) = client1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(sender.send_request(post(full("asked"))).await.unwrap()).await, "asked");
}

#[tokio::test(start_paused = true)]
async fn handshake_that_does_not_go_on_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let port = certificates(&Authority::new("a.example"), directory.path(), true);
    for protection in [Protection::Mutual(port.clone()), Protection::Tls(port)] {
        let echo = Echo::start(protection).await;
        let _held =
            [TcpStream::connect(echo.http1).await.unwrap(), TcpStream::connect(echo.http2).await.unwrap()];
        until(|| echo.connections.failed_handshakes().values().sum::<u64>() == 2).await;
        assert_eq!(echo.connections.counts().pending, 0);
    }
}
