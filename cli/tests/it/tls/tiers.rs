//! Certificates of a fleet, and its processes with any of them.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_testing::fleet::{BUCKET, TENANTS, controller_on, policy};
use plimsoll_testing::process::{FREE, FREE_PORT, Process, http_get};
use plimsoll_tls::rustls::pki_types::ServerName;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::{Certificates, HandshakeFailure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

pub(super) const DOMAIN: &str = "test.example";

pub(super) const SERVICE: &str = "demo";
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a certificate of an hour and the authority that issues it, and returns their folder.
    pub(super) fn issue(&self, name: &str, authority: &Authority, role: PeerRole) -> PathBuf {
        self.issue_for(name, authority, role, Validity::default())
    }

    /// Writes a certificate of another validity.
    pub(super) fn issue_for(
        &self,
        name: &str,
        authority: &Authority,
        role: PeerRole,
        validity: Validity,
    ) -> PathBuf {
        let directory = self.path(name);
        authority.write(&directory, role, validity);
        directory
    }

    pub(super) fn controller(&self, limit: u32, security: &[&str]) -> Process {
        let policy = policy(limit, "enforce", false);
        fs::write(self.path("policy.yaml"), policy).unwrap();
        fs::write(self.path("tenants.yaml"), TENANTS).unwrap();
        controller_on(&self.0, security)
    }
}

pub(super) fn certs(directory: &Path) -> [&str; 2] {
    ["--certs", directory.to_str().unwrap()]
}

pub(super) fn controller() -> PeerRole {
    PeerRole::Controller
}

pub(super) fn aggregator_of(zone: &str) -> PeerRole {
    PeerRole::Aggregator {
        zone: Zone::new(zone).unwrap(),
    }
}

pub(super) fn service_of(zone: &str, service: &str) -> PeerRole {
    PeerRole::Service {
        zone: Zone::new(zone).unwrap(),
        service: Name::new(service).unwrap(),
    }
}

/// Returns the address of the port for children.
pub(super) fn url(scheme: &str, parent: &Process) -> String {
    format!("{scheme}://{}", parent.address("listen"))
}

pub(super) fn aggregator(zone: &str, name: &str, parent: &str, security: &[&str]) -> Process {
    let place = ["--zone", zone, "--name", name, "--controller", parent];
    Process::start(&[&["aggregator"], &place[..], &FREE, security].concat())
}

pub(super) fn service(zone: &str, parent: &str, flags: &[&str]) -> Process {
    let place = ["--zone", zone, "--aggregator", parent];
    let serves = ["--listen", FREE_PORT, "--buckets", BUCKET];
    Process::start(&[&["service"], &place[..], &serves, flags].concat())
}

pub(super) fn is_served(service: &Process) -> bool {
    http_get(service.address("listen"), &format!("/{BUCKET}")).0 == 200
}

/// Waits until a process has logged a line that contains all of these texts.
pub(super) fn logged(process: &Process, texts: &[&str]) -> Value {
    process.wait_for(|line| {
        let line = line.to_string();
        texts.iter().all(|text| line.contains(text))
    })
}

/// Opens a connection to a parent with these certificates.
pub(super) fn connect(
    parent: &Process,
    certificates: &Certificates,
) -> Result<(), HandshakeFailure> {
    let address = parent.address("listen");
    let connected = async {
        let stream = TcpStream::connect(address).await.unwrap();
        plimsoll_tls::connect(certificates.child(), ServerName::from(address.ip()), stream).await
    };
    Runtime::new().unwrap().block_on(connected).map(drop)
}
