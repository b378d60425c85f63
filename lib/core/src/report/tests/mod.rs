//! Tests of reports and books: counts, invalid reports, and random histories.

mod allowance;
mod books;
mod counts;
mod histories;
mod outbox;
mod sums;
mod tallies;

use super::*;
use crate::names::{Name, Tenant, Zone};

const PARENT: InstanceId = InstanceId(99);

impl Tallies {
    fn get(&self, id: KeyId) -> Option<Tally> {
        self.iter()
            .find(|(found, _)| *found == id)
            .map(|(_, tally)| tally)
    }
}

impl<const N: usize> From<[(KeyId, Tally); N]> for Tallies {
    fn from(tallies: [(KeyId, Tally); N]) -> Self {
        tallies.into_iter().collect()
    }
}

fn key(tenant: &str) -> Key {
    Key {
        bucket: Bucket::new("checkout").unwrap(),
        tenant: Tenant::new(tenant).unwrap(),
    }
}

fn offered(offered: u64) -> Counts {
    Counts {
        offered,
        ..Counts::ZERO
    }
}

fn refused(offered: u64, dropped: u64) -> Counts {
    Counts {
        dropped,
        ..self::offered(offered)
    }
}

fn on_time(counts: Counts) -> Tally {
    Tally {
        counts,
        late: Counts::ZERO,
    }
}

fn tally(offered: u64) -> Tally {
    on_time(self::offered(offered))
}

fn identity() -> Identity {
    Identity {
        instance: InstanceId(7),
        name: Name::new("host-7:8080").unwrap(),
        service: Name::new("checkout-api").unwrap(),
        zone: Zone::new("eu-west-1a").unwrap(),
        role: Role::Client,
    }
}

fn definition(tenant: &str) -> KeyDefinition {
    KeyDefinition {
        key: key(tenant),
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: false,
    }
}
