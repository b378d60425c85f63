//! The guards and headroom pools of a limiter: the rate and depth of each, from the zone's directive and this
//! client's own load, and the refills of their tokens. Pure: the subscription passes the time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::ZonePool;
use plimsoll_core::law::{Guard, ZoneGuard, client_rate, parameters};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::Counts;

use crate::hot::table::{KeyPlace, Table};

/// Number of measurements without a directive after which a guard or pool follows this client's own load.
const STALE_AFTER: u32 = 5;

#[derive(Default)]
pub(crate) struct Guards {
    /// By the id of their tokens in the table.
    set: BTreeMap<u32, Set>,
    /// By key.
    offered: Vec<Offered>,
    /// The time of the last measurement.
    pub(crate) measured: Option<MonoTime>,
    refilled: Option<MonoTime>,
}

/// A guard or headroom pool that is set.
struct Set {
    of_zone: OfZone,
    /// This client's part of it: its rate and depth.
    part: Guard,
    /// The tokens after the last refill.
    tokens: TokenCount,
    /// Tokens beyond the depth, because this client has just joined or was paused, and the time until they lapse.
    granted: (TokenCount, Duration),
    /// Tokens used up to the last refill, modulo 2^32. Threads that decide while a refill begins may exceed
    /// the tokens.
    used: u32,
    /// Whole tokens that were used and not paid yet.
    debt: u64,
    /// Maximum number of tokens requested between two refills. Fades.
    group: f64,
    /// Measurements since the parent's last directive for it.
    measured: u32,
}

#[derive(Clone, Copy)]
enum OfZone {
    Guard(ZoneGuard),
    /// The pool of this bucket, the number of clients that share it, and the bucket's limit.
    Pool(u32, ZonePool, u32, Limit),
    /// Nothing of the zone: the service itself has configured this rate for this client.
    Alone(Rate),
}

#[derive(Clone, Copy, Default)]
struct Offered {
    /// Requests counted for the key itself, up to the last measurement.
    seen: u64,
    /// For the key and all keys that share its directive; no rate while no guard reads it.
    directive: Load,
    /// For all keys of the bucket, if this is the key of its default class.
    bucket: Load,
    /// Requests of established names since the last measurement, if this is the key of their class.
    established: u64,
    /// Their part of the class's requests, smoothed.
    established_part: f64,
}

#[derive(Clone, Copy, Default)]
struct Load {
    /// Requests since the last measurement.
    fresh: u64,
    /// Requests/s, smoothed; `None` before the first measurement.
    rate: Option<Rate>,
}

impl Load {
    fn measure(&mut self, span: Option<Duration>) {
        let fresh = std::mem::take(&mut self.fresh);
        let measured = span.and_then(|span| Some((Rate::over(fresh, span)?, span)));
        self.rate = measured.map(|(rate, span)| client_rate(self.rate, rate, span));
    }
}

impl Offered {
    /// Measures the part of established names: slowly, so that a flood of other names does not displace them.
    fn measure_established(&mut self, span: Duration) {
        let (established, all) = (std::mem::take(&mut self.established), self.directive.fresh);
        if all > 0 {
            let part = established as f64 / all as f64;
            let kept = (-span.as_secs_f64() / parameters::GUARD_RESERVE_MEMORY.as_secs_f64()).exp();
            self.established_part = kept * self.established_part + (1.0 - kept) * part;
        }
    }
}

impl Guards {
    /// Sets a key's guard. A new guard starts full; an existing one keeps its tokens up to the new depth.
    pub(crate) fn set(&mut self, table: &Table, key: u32, zone: ZoneGuard) {
        self.put(table, key, OfZone::Guard(zone));
    }

    /// Sets a key's guard of a rate that the service itself has configured.
    pub(crate) fn set_alone(&mut self, table: &Table, key: u32, rate: Rate) {
        self.put(table, key, OfZone::Alone(rate));
    }

    /// Sets the headroom pool of a bucket, the number of clients that share it and the bucket's limit, or
    /// removes the pool with all its tokens. A new pool starts full; an existing one keeps its tokens up to
    /// the new depth, and none without headroom.
    pub(crate) fn set_pool(
        &mut self,
        table: &Table,
        bucket: u32,
        pool: Option<(ZonePool, u32, Limit)>,
    ) {
        let id = table.headroom(bucket);
        match pool {
            Some((zone, clients, limit)) => {
                self.put(table, id, OfZone::Pool(bucket, zone, clients, limit))
            }
            None if self.set.remove(&id).is_some() => {
                table.fill(id, TokenCount::NONE, TokenCount::NONE);
                table.refill();
            }
            None => {}
        }
    }

    /// Sets the tokens that this client was granted in a bucket's headroom pool, beyond the pool's depth, because it
    /// has just joined. They are not refilled, and lapse. Does nothing for a bucket without a pool.
    pub(crate) fn grant(&mut self, table: &Table, bucket: u32, tokens: TokenCount) {
        let id = table.headroom(bucket);
        let Some(set) = self.set.get_mut(&id) else {
            return;
        };
        let most = TokenCount::new(parameters::GRANT_DEPTH_REQUESTS);
        set.granted = (tokens.min(most), parameters::GRANT_LAPSE);
        set.refill(table, id, Duration::ZERO);
        table.refill();
    }

    fn put(&mut self, table: &Table, id: u32, of_zone: OfZone) {
        let group = self.set.get(&id).map_or(0.0, |set| set.group);
        let part = of_zone.part(table, (id, group), &self.offered);
        match self.set.entry(id) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                (held.of_zone, held.measured) = (of_zone, 0);
                let before = std::mem::replace(&mut held.part, part);
                // A larger depth fills with time; a smaller one applies immediately.
                if part.depth < before.depth {
                    held.refill(table, id, Duration::ZERO);
                    table.refill();
                }
            }
            Entry::Vacant(vacant) => {
                let used = table.counters.used(id);
                let granted = (TokenCount::NONE, Duration::ZERO);
                let tokens = part.depth;
                vacant.insert(Set {
                    of_zone,
                    part,
                    tokens,
                    granted,
                    used,
                    debt: 0,
                    group,
                    measured: 0,
                });
                table.fill(id, part.depth, part.depth);
                table.refill();
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u32) {
        self.set.remove(&key);
    }

    /// Measures the load since the last call, and passes the counts of each key to `on_counts`.
    /// `places` has all keys, by id. Linear in the keys.
    ///
    /// A guard follows with the parent's next directive, which includes the load of the other clients: compared
    /// with the zone's load before a surge, every client's own load would look like the whole. Without a directive
    /// for `STALE_AFTER` measurements it follows anyway.
    pub(crate) fn measure(
        &mut self,
        now: MonoTime,
        table: &Table,
        places: &[KeyPlace],
        mut on_counts: impl FnMut(&KeyPlace, Counts),
    ) {
        let span = self.measured.map(|at| now.since(at));
        self.measured = Some(now);
        self.offered.resize(places.len(), Offered::default());
        for place in places {
            let counts = table.counters.counts(place.key);
            on_counts(place, counts);
            let Some(own) = self.offered.get_mut(place.key as usize) else {
                continue;
            };
            // A sum read during writes may be lower than the previous one.
            let fresh = counts.offered.saturating_sub(own.seen);
            if fresh == 0 {
                continue;
            }
            own.seen += fresh;
            if let Some(source) = self
                .offered
                .get_mut(table.target_of(*place).source() as usize)
            {
                source.directive.fresh += fresh;
                if table.own_directive(place.key).is_established() {
                    source.established += fresh;
                }
            }
            if let Some(class) = self.offered.get_mut(place.default_key as usize) {
                class.bucket.fresh += fresh;
            }
        }
        for (place, offered) in places.iter().zip(&mut self.offered) {
            let is_class = place.key == place.default_key;
            // Also of the class of a plan.
            offered.measure_established(span.unwrap_or_default());
            if is_class {
                offered.bucket.measure(span);
            }
            // A guard reads the load of its directive: that of a class from its beginning.
            let is_read = is_class || self.set.contains_key(&place.key);
            offered.directive.measure(span.filter(|_| is_read));
        }
        for (id, set) in &mut self.set {
            set.measured = set.measured.saturating_add(1);
            if set.measured >= STALE_AFTER {
                set.part = set.of_zone.part(table, (*id, set.group), &self.offered);
            }
        }
    }

    /// Adds the tokens of the time since the last refill to every guard and pool. Linear in them.
    pub(crate) fn refill(&mut self, now: MonoTime, table: &Table) {
        let elapsed = self.refilled.map_or(Duration::ZERO, |at| now.since(at));
        self.refilled = Some(now);
        for (id, set) in &mut self.set {
            let part = self
                .offered
                .get(*id as usize)
                .map_or(0.0, |offered| offered.established_part);
            table.set_reserve(
                *id,
                TokenCount::new(parameters::GUARD_RESERVE * part * set.part.depth.as_f64()),
            );
            set.refill(table, *id, elapsed);
        }
        table.refill();
    }
}

impl OfZone {
    /// Returns this client's part, by its load and its largest group.
    fn part(&self, table: &Table, (id, group): (u32, f64), offered: &[Offered]) -> Guard {
        let load = |key: u32| offered.get(key as usize);
        match *self {
            Self::Guard(zone) => {
                Guard::part_of(&zone, load(id).and_then(|load| load.directive.rate))
            }
            Self::Pool(bucket, zone, clients, limit) => {
                let own = table
                    .default_key(bucket)
                    .and_then(load)
                    .and_then(|load| load.bucket.rate);
                let group = Guard::depth_of_group(group, limit);
                Guard::pool(&zone, own, clients, group)
            }
            Self::Alone(rate) => {
                let alone = ZoneGuard {
                    limit: Limit::PerSecond(rate),
                    rate,
                    offered: None,
                    clients: 1,
                };
                Guard::part_of(&alone, Some(Rate::ZERO))
            }
        }
    }
}

impl Set {
    /// Subtracts the tokens used since the last refill, then adds the new ones. If the refill is late, the process
    /// was paused, and the requests of that time arrive together now. So the tokens above the depth lapse only
    /// after the same time again. No more requests pass than with refills in time.
    fn refill(&mut self, table: &Table, id: u32, elapsed: Duration) {
        let used = table.counters.used(id);
        let fresh = used.wrapping_sub(self.used).cast_signed();
        self.used = used;
        // A request may give back tokens that an earlier refill paid.
        let returned = u64::from(fresh.min(0).unsigned_abs());
        let forgiven = returned.min(self.debt);
        let fresh = u64::from(fresh.max(0).unsigned_abs());
        self.debt = self.debt - forgiven + fresh;
        self.tokens = self
            .tokens
            .plus(TokenCount::new((returned - forgiven) as f64));
        let late = elapsed
            .saturating_sub(parameters::REFILL)
            .min(parameters::PAUSE_MAX);
        let depth = self.part.depth;
        let deeper = depth.plus(TokenCount::new(
            self.part.rate.per_second() * late.as_secs_f64(),
        ));
        self.tokens = self
            .tokens
            .pay(&mut self.debt)
            .refilled(self.part.rate, elapsed, deeper);
        self.tokens = self.tokens.pay(&mut self.debt);
        let (granted, left) = self.granted;
        let left = left.saturating_sub(elapsed).max(late);
        let granted = granted.pay(&mut self.debt).plus(self.tokens.above(depth));
        self.tokens = self.tokens.min(depth);
        let lapses = left.is_zero() || depth == TokenCount::NONE;
        self.granted = if lapses {
            Default::default()
        } else {
            (granted, left)
        };
        // Two parts of a token are a whole one. Debts are paid first.
        let mut debt = self.debt;
        let free = self.tokens.plus(self.granted.0).pay(&mut debt);
        let missed = table.fill(id, free, depth);
        let kept = 1.0 - elapsed.as_secs_f64() / parameters::POOL_GROUP_FADE.as_secs_f64();
        self.group = (self.group * kept.max(0.0)).max(fresh as f64 + f64::from(missed));
    }
}
