//! Clients that name another zone than their aggregator's, which only a connection without certificates can: they are
//! served, and each pair of service and zone is logged once.

use std::collections::BTreeSet;

use plimsoll_core::names::{Name, Zone};
use plimsoll_core::report::{Identity, Role};

/// Maximum number of pairs of service and zone that are logged.
const FOREIGN_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ForeignClients {
    seen: BTreeSet<(Name, Zone)>,
    unlogged: Vec<(Name, Zone)>,
}

impl ForeignClients {
    pub(crate) fn on_greeting(&mut self, own: &Zone, client: &Identity) {
        if !is_foreign(own, client) || self.seen.len() >= FOREIGN_MAX {
            return;
        }
        let pair = (client.service.clone(), client.zone.clone());
        if self.seen.insert(pair.clone()) {
            self.unlogged.push(pair);
        }
    }

    pub(crate) fn take_unlogged(&mut self) -> Vec<(Name, Zone)> {
        std::mem::take(&mut self.unlogged)
    }
}

/// Returns true for a client that names another zone. A child aggregator may be of any zone.
pub(crate) fn is_foreign(own: &Zone, child: &Identity) -> bool {
    child.role == Role::Client && child.zone != *own
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::report::InstanceId;

    #[test]
    fn foreign_service_is_logged_once() {
        let own = Zone::new("a").unwrap();
        let mut foreign = ForeignClients::default();
        let mut greet = |service: &str, zone: &str, role| {
            let identity = Identity {
                instance: InstanceId(1),
                name: Name::new("host:1").unwrap(),
                service: Name::new(service).unwrap(),
                zone: Zone::new(zone).unwrap(),
                role,
            };
            foreign.on_greeting(&own, &identity);
            foreign.take_unlogged().len()
        };
        for (service, zone, role, logged) in [
            ("shop", "a", Role::Client, 0),
            ("shop", "b", Role::Client, 1),
            ("shop", "b", Role::Client, 0),
            ("shop", "c", Role::Client, 1),
            ("mail", "b", Role::Client, 1),
            ("mail", "d", Role::Aggregator, 0),
        ] {
            assert_eq!(
                greet(service, zone, role),
                logged,
                "{service} {zone} {role:?}"
            );
        }
        let many = (0..2 * FOREIGN_MAX)
            .map(|n| greet("shop", &format!("z{n}"), Role::Client))
            .sum::<usize>();
        assert_eq!(many, FOREIGN_MAX - 3);
    }
}
