//! The ports of a tier: limits of their connections, metrics of connections that are pending, refused or timed out
//! and of a lack of descriptors, and the default name of a process.

use std::net::SocketAddr;

use plimsoll_core::names::Name;
use plimsoll_core::stats::metrics::{Metric, Series, Value, one, rows};
use plimsoll_host::descriptors;
use plimsoll_net::{ConnectionCounts, Connections, PENDING_MAX_DEFAULT};

/// Maximum number of connections of an admin port; one address has half of them at most.
pub const ADMIN_CONNECTIONS_MAX: usize = 128;

/// Returns the name of a process that was given none: the machine and the port. Without a valid name the machine is
/// `localhost`.
pub fn host_and_port(listen: SocketAddr) -> String {
    let host = plimsoll_host::hostname().filter(|host| Name::new(host).is_ok());
    format!(
        "{}:{}",
        host.as_deref().unwrap_or("localhost"),
        listen.port()
    )
}

/// The connections of both ports of a tier. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The connections of the gRPC port.
    pub grpc: Connections,
    /// The connections of the admin port. Each of them counts as pending.
    pub admin: Connections,
}

impl Ports {
    /// Allows this many connections without a greeting at the gRPC port, at most half of the
    /// descriptors. All connections of the gRPC port together leave some descriptors to the admin
    /// port, which shows a lack of them.
    pub fn new(pending_max: usize) -> Self {
        let half = descriptors::part(2);
        let children = descriptors::children(descriptors::limit());
        let open_max = usize::try_from(children).unwrap_or(usize::MAX);
        Self {
            grpc: Connections::new(pending_max.min(half), open_max),
            admin: Connections::fair(ADMIN_CONNECTIONS_MAX.min(half)),
        }
    }

    /// Returns both ports with their names.
    pub fn named(&self) -> NamedPorts {
        vec![("grpc", self.grpc.clone()), ("admin", self.admin.clone())]
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self::new(PENDING_MAX_DEFAULT)
    }
}

/// The ports of a process by their names.
pub type NamedPorts = Vec<(&'static str, Connections)>;

/// The metrics of ports.
pub const METRICS: [Metric<NamedPorts>; 7] = [
    Metric::gauge(
        "plimsoll_connections_pending",
        &["port"],
        "Connections whose peer has not sent a greeting yet; at an HTTP port, all connections.",
        |ports| each(ports, |counts| counts.pending.into()),
    ),
    Metric::gauge(
        "plimsoll_accept_failing",
        &["port"],
        "1 while connections cannot be accepted because descriptors or memory ran out.",
        |ports| each(ports, |counts| counts.is_failing.into()),
    ),
    Metric::counter(
        "plimsoll_connections_refused_total",
        &["port"],
        "Connections closed because too many were pending, in all or of their address.",
        |ports| each(ports, |counts| counts.refused.into()),
    ),
    Metric::counter(
        "plimsoll_connections_timed_out_total",
        &["port"],
        "Connections closed because no greeting came in time.",
        |ports| each(ports, |counts| counts.timed_out.into()),
    ),
    Metric::counter(
        "plimsoll_handshakes_failed_total",
        &["port", "reason"],
        "Connections closed because of their TLS handshake.",
        |ports| {
            rows(ports.iter().flat_map(|(port, connections)| {
                let failed = connections.failed_handshakes().into_iter();
                failed.map(|(reason, count)| ([*port, reason], count))
            }))
        },
    ),
    Metric::counter(
        "plimsoll_accept_failures_total",
        &["port"],
        "Failed attempts to accept a connection.",
        |ports| each(ports, |counts| counts.failures.into()),
    ),
    Metric::gauge(
        "plimsoll_descriptors_limit",
        &[],
        "Largest number of open descriptors of the process.",
        |_| one(descriptors::limit()),
    ),
];

fn each(
    ports: &[(&'static str, Connections)],
    value: fn(ConnectionCounts) -> Value,
) -> Vec<Series> {
    rows(
        ports
            .iter()
            .map(|(port, connections)| ([*port], value(connections.counts()))),
    )
}
