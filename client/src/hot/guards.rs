//! The guards of a limiter: the rate and depth of each, from the zone's directive and this client's own load,
//! and the refills of their tokens. Pure: the subscription passes the time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use plimsoll_core::decision::token_bucket::Tokens;
use plimsoll_core::law::{Guard, Parameters, ZoneGuard, client_rate};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};

use crate::hot::table::{KeyPlace, Table};

/// The number of measurements without a directive after which a guard follows this client's own load alone.
const STALE_AFTER: u32 = 5;

/// Every guard that is set, and the load offered to this client.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    parameters: Parameters,
    set: BTreeMap<u32, Set>,
    /// By key.
    offered: Vec<Offered>,
    measured: Option<MonoTime>,
    refilled: Option<MonoTime>,
}

/// A guard that is set.
#[derive(Debug)]
struct Set {
    /// The zone's directive; `None` for a rate that the service itself has configured.
    zone: Option<ZoneGuard>,
    part: Guard,
    /// The tokens after the last refill.
    tokens: Tokens,
    /// Tokens used up to the last refill, modulo 2^32. Threads that decide while a refill begins may exceed
    /// the tokens.
    used: u32,
    debt: u64,
    /// Measurements since the parent's last directive for it.
    measured: u32,
}

/// The load offered to one key.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    /// Requests counted for the key alone, up to the last measurement.
    seen: u64,
    /// Requests since then, for the key and all keys that share its directive.
    fresh: u64,
    /// Requests/s for the key and all keys that share its directive, smoothed; `None` before the first
    /// measurement, and while the key has no directive of its own.
    rate: Option<Rate>,
}

impl Guards {
    /// Sets a key's guard. A new guard starts full; an existing one keeps its tokens up to the new depth.
    pub(crate) fn set(&mut self, table: &Table, key: u32, zone: ZoneGuard) {
        let own = self.offered.get(key as usize).and_then(|offered| offered.rate);
        let part = Guard::part_of(&zone, own, &self.parameters);
        self.put(table, key, Some(zone), part);
    }

    /// Sets a key's guard to a rate of this client alone. A new guard starts full.
    pub(crate) fn set_alone(&mut self, table: &Table, key: u32, rate: Rate) {
        let alone = ZoneGuard { limit: Limit::PerSecond(rate), rate, offered: None, clients: 1 };
        let part = Guard::part_of(&alone, Some(Rate::ZERO), &self.parameters);
        self.put(table, key, None, part);
    }

    fn put(&mut self, table: &Table, key: u32, zone: Option<ZoneGuard>, part: Guard) {
        match self.set.entry(key) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                (held.zone, held.measured) = (zone, 0);
                let before = std::mem::replace(&mut held.part, part);
                // A larger depth fills with time; a smaller one applies at once.
                if part.depth < before.depth {
                    held.refill(table, key, Duration::ZERO);
                    table.refill();
                }
            }
            Entry::Vacant(vacant) => {
                let used = table.counters.used(key);
                vacant.insert(Set { zone, part, tokens: part.depth, used, debt: 0, measured: 0 });
                table.fill(key, part.depth, part.depth);
                table.refill();
            }
        }
    }

    /// Removes a key's guard.
    pub(crate) fn remove(&mut self, key: u32) {
        self.set.remove(&key);
    }

    /// Returns the time of the last measurement.
    pub(crate) const fn measured(&self) -> Option<MonoTime> {
        self.measured
    }

    /// Measures the load since the last call. `places` are those of all keys, by id. Linear in the keys.
    ///
    /// The guards follow with the parent's next directive, which includes the load of the other clients:
    /// compared with the zone's load before a surge, every client's own load would look like the whole.
    pub(crate) fn measure(&mut self, now: MonoTime, table: &Table, places: &[KeyPlace]) {
        let span = self.measured.map(|at| now.since(at));
        self.measured = Some(now);
        self.offered.resize(places.len(), Offered::default());
        for place in places {
            let offered = table.counters.counts(place.key).offered;
            let Some(own) = self.offered.get_mut(place.key as usize) else { continue };
            // A sum read during writes may be lower than the previous one.
            let fresh = offered.saturating_sub(own.seen);
            own.seen += fresh;
            if let Some(class) = self.offered.get_mut(table.target_of(*place).source() as usize) {
                class.fresh += fresh;
            }
        }
        for (place, offered) in places.iter().zip(&mut self.offered) {
            let fresh = std::mem::take(&mut offered.fresh);
            let has_own_directive = table.target_of(*place).source() == place.key;
            let measured =
                span.filter(|_| has_own_directive).and_then(|span| Some((Rate::over(fresh, span)?, span)));
            let rate = |(rate, span)| client_rate(offered.rate, rate, span, &self.parameters);
            offered.rate = measured.map(rate);
        }
        for (key, set) in &mut self.set {
            set.measured = set.measured.saturating_add(1);
            let Some(zone) = set.zone.filter(|_| set.measured >= STALE_AFTER) else { continue };
            let own = self.offered.get(*key as usize).and_then(|offered| offered.rate);
            set.part = Guard::part_of(&zone, own, &self.parameters);
        }
    }

    /// Adds the tokens of the time since the last refill to every guard. Linear in the guards.
    pub(crate) fn refill(&mut self, now: MonoTime, table: &Table) {
        let elapsed = self.refilled.map_or(Duration::ZERO, |at| now.since(at));
        self.refilled = Some(now);
        for (key, set) in &mut self.set {
            set.refill(table, *key, elapsed);
        }
        table.refill();
    }
}

impl Set {
    /// Subtracts the tokens used since the last refill, then adds the new ones.
    fn refill(&mut self, table: &Table, key: u32, elapsed: Duration) {
        let used = table.counters.used(key);
        self.debt += u64::from(used.wrapping_sub(self.used));
        self.used = used;
        self.tokens = self.tokens.pay(&mut self.debt).refilled(self.part.rate, elapsed, self.part.depth);
        self.tokens = self.tokens.pay(&mut self.debt);
        table.fill(key, self.tokens, self.part.depth);
    }
}
