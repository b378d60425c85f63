//! A controller that does not lead, behind a real socket.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_net::Connections;
use plimsoll_proto::transport;
use plimsoll_tls::Certificates;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::patiently;

pub(crate) struct Standby {
    pub(crate) address: SocketAddr,
    /// The URL of the leader.
    pub(crate) leader: watch::Sender<Option<String>>,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

impl Standby {
    pub(crate) async fn start() -> Self {
        Self::serve(None).await
    }

    pub(crate) async fn secured(certificates: &Certificates) -> Self {
        Self::serve(Some(certificates.clone())).await
    }

    async fn serve(certificates: Option<Certificates>) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = plimsoll_net::listen("--listen", any).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (leader, known) = watch::channel(None);
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone().cancelled_owned();
        let served = tokio::spawn(async move {
            let connections = Connections::default();
            transport::serve_standby(
                listener,
                connections,
                certificates,
                known,
                Arc::default(),
                stop,
            )
            .await
            .unwrap();
        });
        Self {
            address,
            leader,
            shutdown,
            served,
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends, and returns the address, which is free.
    pub(crate) async fn stop(self) -> SocketAddr {
        self.shutdown.cancel();
        patiently(self.served).await.unwrap();
        self.address
    }
}
