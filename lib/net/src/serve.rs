//! The loop of a port: accepts connections, protects each, and lets the caller answer it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acceptor::Acceptor;
use crate::protection::{Protection, Stream};

/// Accepts connections until `shutdown` is cancelled, and lets `converse` answer each in a task of
/// its own. The token that it is given is cancelled with `shutdown`. Returns when all have ended.
pub async fn serve<C, F>(
    mut acceptor: Acceptor,
    protection: Protection,
    shutdown: CancellationToken,
    converse: C,
) where
    C: Fn(Stream, SocketAddr, CancellationToken) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let tasks = TaskTracker::new();
    let connections = acceptor.connections().clone();
    let shared = Arc::new((protection, connections, converse));
    while let Some((stream, peer, place)) = shutdown.run_until_cancelled(acceptor.next()).await {
        // Each has its own token: waiting on a shared one costs each request a lock.
        let (shared, closing) = (Arc::clone(&shared), shutdown.child_token());
        tasks.spawn(async move {
            let (protection, connections, converse) = &*shared;
            let connection = async {
                let handshake = protection.handshake(stream);
                match closing.run_until_cancelled(handshake).await {
                    None => {}
                    Some(Ok(stream)) => converse(stream, peer, closing.clone()).await,
                    Some(Err(failure)) => {
                        connections.on_handshake_failed(peer.ip(), failure.label(), &failure)
                    }
                }
            };
            place.closed().run_until_cancelled(connection).await;
        });
    }
    drop(acceptor);
    tasks.close();
    tasks.wait().await;
}

#[cfg(test)]
mod tests {
    use plimsoll_core::exchange::PeerRole;
    use plimsoll_tls::Certificates;
    use plimsoll_tls::testing::{Authority, Validity};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::connections::Connections;

    struct Port {
        address: SocketAddr,
        shutdown: CancellationToken,
        served: JoinHandle<()>,
    }

    impl Port {
        /// Serves connections that end with their token.
        async fn serve(connections: &Connections, protection: Protection) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
            let acceptor = Acceptor::new(listener, connections.clone());
            let served = tokio::spawn(serve(
                acceptor,
                protection,
                shutdown.clone(),
                |mut stream, _, closing| async move {
                    closing.cancelled().await;
                    stream.write_all(b"end").await.unwrap();
                },
            ));
            Self {
                address,
                shutdown,
                served,
            }
        }
    }

    fn protections() -> [Protection; 2] {
        let directory = tempfile::tempdir().unwrap();
        Authority::new("a").write(directory.path(), PeerRole::Controller, Validity::default());
        let certificates = Certificates::open(directory.path()).unwrap();
        [
            Protection::Tls(certificates.clone()),
            Protection::Mutual(certificates),
        ]
    }

    async fn until(is_reached: impl Fn() -> bool) {
        while !is_reached() {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn shutdown_waits_for_open_connections() {
        let connections = Connections::fair(4);
        let port = Port::serve(&connections, Protection::Plain).await;
        let mut peer = TcpStream::connect(port.address).await.unwrap();
        until(|| connections.counts().pending == 1).await;
        port.shutdown.cancel();
        port.served.await.unwrap();
        let mut read = String::new();
        peer.read_to_string(&mut read).await.unwrap();
        assert_eq!((read.as_str(), connections.counts().pending), ("end", 0));
    }

    #[tokio::test]
    async fn plaintext_peer_is_refused_and_counted() {
        for protection in protections() {
            let connections = Connections::fair(4);
            let port = Port::serve(&connections, protection).await;
            let mut peer = TcpStream::connect(port.address).await.unwrap();
            peer.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
            let _ = peer.read_to_end(&mut Vec::new()).await;
            until(|| connections.failed_handshakes()["not_tls"] == 1).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_handshake_returns_its_place() {
        for protection in protections() {
            let connections = Connections::fair(4);
            let port = Port::serve(&connections, protection).await;
            // Nothing, and half of a record, which a handshake waits for.
            for (failed, sent) in [(1, &[][..]), (2, &[22, 3, 1, 2, 0, 1])] {
                let mut peer = TcpStream::connect(port.address).await.unwrap();
                peer.write_all(sent).await.unwrap();
                let _ = peer.read_to_end(&mut Vec::new()).await;
                until(|| connections.counts().pending == 0).await;
                assert_eq!(connections.failed_handshakes()["other"], failed);
            }
        }
    }
}
