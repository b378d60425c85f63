//! The ports of a tier: the name of a process by its port, and metrics of connections that are pending, refused or given up, and
//! of a lack of descriptors.

use std::net::SocketAddr;

use plimsoll_core::names::Name;
use plimsoll_host::descriptors;
use plimsoll_proto::transport::{Connections, Counts};

use crate::metrics_page::{Page, flag, plain};

/// The most connections of an admin port; one address has half of them at most.
const ADMIN_CONNECTIONS_MAX: usize = 128;

/// Returns the name of a process that was given none: the machine and the port. Without a valid name the machine is `localhost`.
#[must_use]
pub fn host_and_port(listen: SocketAddr) -> String {
    let host = plimsoll_host::hostname().filter(|host| Name::new(host).is_ok());
    format!("{}:{}", host.as_deref().unwrap_or("localhost"), listen.port())
}

/// The connections of both ports of a tier. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The connections of the gRPC port.
    pub grpc: Connections,
    /// The connections of the admin port, each of which counts as pending.
    pub admin: Connections,
}

impl Ports {
    /// Allows this many connections without a greeting at the gRPC port, at most half of the descriptors. In all,
    /// it leaves some descriptors to the admin port, by which a lack of them is seen.
    #[must_use]
    pub fn new(pending_max: usize) -> Self {
        let number = |descriptors| usize::try_from(descriptors).unwrap_or(usize::MAX);
        let limit = descriptors::limit();
        let half = number(limit / 2);
        Self {
            grpc: Connections::new(pending_max.min(half), number(descriptors::children(limit))),
            admin: Connections::fair(ADMIN_CONNECTIONS_MAX.min(half), usize::MAX),
        }
    }

    /// Adds the metrics of both ports.
    pub fn add_to(&self, page: &mut Page) {
        add_connections_to(page, &[("grpc", &self.grpc), ("admin", &self.admin)]);
    }
}

/// Adds the metrics of the connections of ports, by their names.
pub fn add_connections_to(page: &mut Page, ports: &[(&'static str, &Connections)]) {
    let counts: Vec<(&str, Counts)> =
        ports.iter().map(|(port, connections)| (*port, connections.counts())).collect();
    let rows = |value: fn(&Counts) -> f64| {
        counts.iter().map(move |(port, counts)| (vec![(*port).to_owned()], value(counts))).collect::<Vec<_>>()
    };
    let help = "Connections whose peer has not sent a greeting yet; at an HTTP port, all connections.";
    page.gauge("plimsoll_connections_pending", help, &["port"], rows(|counts| counts.pending as f64));
    let help = "1 while connections cannot be accepted because descriptors or memory ran out.";
    page.gauge("plimsoll_accept_failing", help, &["port"], rows(|counts| flag(counts.is_failing)));
    let help = "Connections closed because too many were pending, in all or of their address.";
    page.counter("plimsoll_connections_refused_total", help, &["port"], rows(|counts| counts.refused as f64));
    let help = "Connections closed because no greeting came in time.";
    let rows_of = rows(|counts| counts.timed_out as f64);
    page.counter("plimsoll_connections_timed_out_total", help, &["port"], rows_of);
    let failed = ports.iter().flat_map(|(port, connections)| {
        let rows = connections.failed_handshakes().into_iter();
        rows.map(move |(reason, count)| (vec![(*port).to_owned(), reason.to_owned()], count as f64))
    });
    let help = "Connections closed because their TLS handshake failed.";
    page.counter("plimsoll_handshakes_failed_total", help, &["port", "reason"], failed);
    let help = "Failed attempts to accept a connection.";
    page.counter("plimsoll_accept_failures_total", help, &["port"], rows(|counts| counts.failures as f64));
    let help = "Largest number of open descriptors of this process.";
    page.gauge("plimsoll_descriptors_limit", help, &[], plain(descriptors::limit() as f64));
}

impl Default for Ports {
    fn default() -> Self {
        Self::new(plimsoll_proto::transport::PENDING_MAX_DEFAULT)
    }
}
