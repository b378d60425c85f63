//! The guards of a limiter: each one's rate and depth, from what the zone directs and what this client itself is
//! offered, and the refills of their tokens. Pure: the subscription says what time it is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use plimsoll_core::law::{Guard, Parameters, ZoneGuard, client_rate};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::decision::token_bucket::Tokens;

use crate::hot::table::{KeyPlace, Table};

/// After so many measurements without a word from the parent, parts follow what is offered here alone.
const TOLD_LATELY: u32 = 5;

/// Every guard that is set, and what is offered here.
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
    /// What the zone directs; `None` where the service itself has wished for a guard.
    zone: Option<ZoneGuard>,
    part: Guard,
    /// What there was after the last refill.
    tokens: Tokens,
    /// What passed since, and before it without a token: threads that decide while a refill begins.
    used: u32,
    debt: u64,
    /// Measurements since the parent last spoke of it.
    measured: u32,
}

/// What this client is offered.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    /// For the key alone, at the last measurement.
    seen: u64,
    /// Since then, for the key and all that follow it.
    fresh: u64,
    /// For the key and all that follow it, smoothed; `None` while it follows another or nothing was measured.
    rate: Option<Rate>,
}

impl Guards {
    /// Sets a key's guard: full when there was none, else with the tokens it has, as far as they fit.
    pub(crate) fn set(&mut self, table: &Table, key: u32, zone: ZoneGuard) {
        let own = self.offered.get(key as usize).and_then(|offered| offered.rate);
        let part = Guard::part_of(&zone, own, &self.parameters);
        self.put(table, key, Some(zone), part);
    }

    /// Sets a key's guard to a rate that is this client's alone: full when there was none.
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
                // More room fills with time. Less of it holds at once.
                if part.depth < before.depth {
                    held.refill(table, key, Duration::ZERO);
                    table.refill();
                }
            }
            Entry::Vacant(vacant) => {
                let used = table.slabs.used(key);
                vacant.insert(Set { zone, part, tokens: part.depth, used, debt: 0, measured: 0 });
                table.fill(key, part.depth, part.depth);
                table.refill();
            }
        }
    }

    /// Takes a key's guard away.
    pub(crate) fn remove(&mut self, key: u32) {
        self.set.remove(&key);
    }

    /// When what is offered was last measured.
    pub(crate) const fn measured(&self) -> Option<MonoTime> {
        self.measured
    }

    /// Measures what is offered since the last time. `places` are those of all keys, by id. Linear in the keys.
    ///
    /// This client's parts follow with the next word from the parent, which knows what the others are offered by then:
    /// held against what was offered in the zone before a surge, every client's share would look like all of it.
    pub(crate) fn measure(&mut self, now: MonoTime, table: &Table, places: &[KeyPlace]) {
        let span = self.measured.map(|at| now.since(at));
        self.measured = Some(now);
        self.offered.resize(places.len(), Offered::default());
        for place in places {
            let offered = table.slabs.counts(place.key).offered;
            let Some(own) = self.offered.get_mut(place.key as usize) else { continue };
            // A count read while it is being written may seem to go back.
            let fresh = offered.saturating_sub(own.seen);
            own.seen += fresh;
            let (directing, _) = table.directing(*place);
            if let Some(class) = self.offered.get_mut(directing as usize) {
                class.fresh += fresh;
            }
        }
        for (place, offered) in places.iter().zip(&mut self.offered) {
            let fresh = std::mem::take(&mut offered.fresh);
            let directs_itself = table.directing(*place).0 == place.key;
            let measured =
                span.filter(|_| directs_itself).and_then(|span| Some((Rate::over(fresh, span)?, span)));
            let rate = |(rate, span)| client_rate(offered.rate, rate, span, &self.parameters);
            offered.rate = measured.map(rate);
        }
        for (key, set) in &mut self.set {
            set.measured = set.measured.saturating_add(1);
            let Some(zone) = set.zone.filter(|_| set.measured >= TOLD_LATELY) else { continue };
            let own = self.offered.get(*key as usize).and_then(|offered| offered.rate);
            set.part = Guard::part_of(&zone, own, &self.parameters);
        }
    }

    /// Gives every guard the tokens of the time since the last refill. Linear in the guards.
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
    /// Pays for what passed since the last refill, and adds what came.
    fn refill(&mut self, table: &Table, key: u32, elapsed: Duration) {
        let used = table.slabs.used(key);
        self.debt += u64::from(used.wrapping_sub(self.used));
        self.used = used;
        self.tokens = self.tokens.pay(&mut self.debt).refilled(self.part.rate, elapsed, self.part.depth);
        self.tokens = self.tokens.pay(&mut self.debt);
        table.fill(key, self.tokens, self.part.depth);
    }
}
