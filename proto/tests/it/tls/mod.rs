//! Streams over mTLS: what each certificate allows, renewal, and resumption.

mod refusals;
mod renewal;
mod standby;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_tls::Certificates;
use plimsoll_tls::testing::{Authority, Validity};
use tempfile::TempDir;

use crate::scripted::identity;

const DOMAIN: &str = "fleet.example";

fn zone(zone: &str) -> Zone {
    Zone::new(zone).unwrap()
}

fn service() -> PeerRole {
    let own = identity(7);
    PeerRole::Service {
        zone: own.zone,
        service: own.service,
    }
}

fn service_of(zone: Zone, service: &str) -> PeerRole {
    PeerRole::Service {
        zone,
        service: Name::new(service).unwrap(),
    }
}

fn aggregator() -> PeerRole {
    PeerRole::Aggregator {
        zone: identity(7).zone,
    }
}

struct Process {
    directory: TempDir,
    certificates: Certificates,
}

impl Process {
    fn new(authority: &Authority, role: PeerRole) -> Self {
        Self::valid(authority, role, Validity::default())
    }

    fn valid(authority: &Authority, role: PeerRole, validity: Validity) -> Self {
        let directory = TempDir::new().unwrap();
        authority.write(directory.path(), role, validity);
        let certificates = Certificates::open(directory.path()).unwrap();
        Self {
            directory,
            certificates,
        }
    }
}
