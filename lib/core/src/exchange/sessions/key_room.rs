//! Room for the keys that all clients of one parent define: one service cannot take all of it.

use std::collections::BTreeMap;

use crate::names::Name;
use crate::report::{Identity, Role};

/// The part of the room that no single service can take, as a divisor.
const RESERVED_PART: usize = 5;

/// The keys in the books of all clients, by service. A child aggregator bounds the keys of its clients itself, and
/// takes no room.
#[derive(Debug)]
pub(super) struct KeyRoom {
    keys_max: usize,
    used: usize,
    by_service: BTreeMap<Name, usize>,
}

impl KeyRoom {
    pub(super) const fn new(keys_max: usize) -> Self {
        Self {
            keys_max,
            used: 0,
            by_service: BTreeMap::new(),
        }
    }

    pub(super) fn on_change(&mut self, child: &Identity, before: usize, after: usize) {
        if before == after || child.role == Role::Aggregator {
            return;
        }
        self.used = (self.used + after).saturating_sub(before);
        let of_service = self.by_service.entry(child.service.clone()).or_default();
        *of_service = (*of_service + after).saturating_sub(before);
        if *of_service == 0 {
            self.by_service.remove(&child.service);
        }
    }

    /// The keys that clients of a service may have together.
    pub(super) const fn of_service_max(&self) -> usize {
        self.keys_max - self.keys_max / RESERVED_PART
    }

    pub(super) fn has_room(&self, child: &Identity, more: usize) -> bool {
        if more == 0 || child.role == Role::Aggregator {
            return true;
        }
        let of_service = self
            .by_service
            .get(&child.service)
            .copied()
            .unwrap_or_default();
        self.used.saturating_add(more) <= self.keys_max
            && of_service.saturating_add(more) <= self.of_service_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Zone;
    use crate::report::InstanceId;

    #[test]
    fn one_service_leaves_room_for_others() {
        let [shop, search] = ["shop", "search"].map(|service| Identity {
            instance: InstanceId(1),
            name: Name::new("host").unwrap(),
            service: Name::new(service).unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        });
        let mut room = KeyRoom::new(100);
        room.on_change(&shop, 0, 50);
        room.on_change(&shop, 0, 30);
        assert!(
            !room.has_room(&shop, 1) && room.has_room(&search, 20) && !room.has_room(&search, 21)
        );
        room.on_change(&search, 0, 20);
        assert!(!room.has_room(&search, 1));
        room.on_change(&shop, 50, 0);
        assert!(room.has_room(&shop, 50) && room.has_room(&search, 50));
        for (service, keys) in [(&shop, 30), (&search, 20)] {
            room.on_change(service, keys, 0);
        }
        assert!(room.by_service.is_empty() && room.used == 0);
    }
}
