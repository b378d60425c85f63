//! The port for any Redis client: accepts connections within bounds, with TLS beyond loopback if the
//! server has certificates, and answers the commands on each.

mod batch;
mod commands;
mod connection;
mod counters;
mod input;
mod rehearsal;
mod reply;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_admin::access::Access;
use plimsoll_net::{Acceptor, Connections, Protection};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use self::counters::Counters;
pub use self::input::COMMAND_BYTES_MAX;
pub use self::rehearsal::Rehearsal;

use crate::engine::Engine;
use crate::leases::Leases;
use reply::Reply;
use session::REDIS_VERSION;

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) engine: Engine,
    pub(crate) counters: Arc<Counters>,
    pub(crate) access: Access,
    pub(crate) leases: Leases,
    /// Limit of how far `AT` may be ahead of the server's clock, in milliseconds.
    pub(crate) at_ahead_max_ms: u64,
    pub(crate) protection: Protection,
    /// True if clients must authenticate first.
    pub(crate) needs_token: bool,
    pub(crate) connections: Connections,
}

impl Port {
    /// Answers `INFO` with what clients and their tools look for.
    fn info(&self) -> Reply {
        let Self {
            counters,
            engine,
            connections,
            ..
        } = self;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (open, connections_so_far) = (count(&counters.open), count(&counters.connections));
        let commands: u64 = counters.operations().map(|(_, _, count)| count).sum();
        let (refused, version) = (connections.counts().refused, env!("CARGO_PKG_VERSION"));
        // Clients wait until `loading` is 0, as it always is: the port opens after the store. `keys`
        // counts only the buckets in memory.
        let text = format!(
            "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:plimsoll\r\nplimsoll_version:{version}\r\n\
             loading:0\r\nrole:master\r\nconnected_clients:{open}\r\ntotal_connections_received:{connections_so_far}\r\n\
             rejected_connections:{refused}\r\ntotal_commands_processed:{commands}\r\ndb0:keys={},expires=0,avg_ttl=0\r\n",
            engine.stats().buckets
        );
        Reply::Bulk(text.into())
    }
}

/// Serves `listener` until `shutdown` is cancelled. Returns when all connections have ended.
pub(crate) async fn serve(listener: TcpListener, port: Port, shutdown: CancellationToken) {
    let acceptor = Acceptor::new(listener, port.connections.clone()).without_pauses();
    let (protection, port) = (port.protection.clone(), Arc::new(port));
    plimsoll_net::serve(
        acceptor,
        protection,
        shutdown,
        move |stream, peer, closing| {
            let port = Arc::clone(&port);
            async move { connection::converse(stream, peer, &port, &closing).await }
        },
    )
    .await;
}
