//! The exchange of reports and directives with the aggregators, by the rules of the protocol.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{
    BucketDirective, CatalogueNews, Directives, Epoch, Posted, StaleDirective, Values,
};
use plimsoll_core::exchange::Child;
use plimsoll_core::law::tail::Standing;
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{ClientCounts, Counts, Evidence, Greeting, Report, Role};

use super::{ONLY, Published, Publisher, REPORT_INTERVAL_DEFAULT, Subscription};
use crate::hot::table::Table;
use crate::subscription::assignment::EndpointId;

/// The established names in one greeting, at most. Further ones become established again.
const ESTABLISHED_MAX: usize = 10_000;

// === Streams ===

impl Subscription {
    pub(crate) fn list_endpoints(
        &mut self,
        now: MonoTime,
        names: &[Arc<str>],
    ) -> Vec<(EndpointId, Arc<str>)> {
        let Some(routing) = &mut self.routing else {
            return Vec::new();
        };
        let new = routing.assignment.list(now, names);
        for (id, _) in &new {
            self.sessions.add(*id, self.directives.restored_epoch());
        }
        new
    }

    pub(crate) fn remove_unused_endpoints(&mut self) -> Vec<EndpointId> {
        self.routing
            .as_mut()
            .map(|routing| routing.assignment.remove_unused())
            .unwrap_or_default()
    }

    /// Ends the session with an aggregator that was [removed](Self::remove_unused_endpoints), after its
    /// stream.
    pub(crate) fn end_session(&mut self, id: EndpointId) {
        self.sessions.remove(id);
    }

    pub(crate) fn open_stream(&mut self, id: EndpointId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.open();
        }
    }

    pub(crate) fn on_read_by(&mut self, id: EndpointId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.on_read();
        }
    }

    pub(crate) fn on_lost(&mut self, id: EndpointId, now: MonoTime) {
        if let Some(routing) = &mut self.routing {
            routing.assignment.liveness.on_lost(now, id);
        }
    }

    pub(crate) fn report_interval_to(&self, id: EndpointId) -> Duration {
        self.sessions
            .get(id)
            .map_or(REPORT_INTERVAL_DEFAULT, |session| session.report_interval)
    }
}

// === Reports ===

impl Subscription {
    pub(crate) fn is_report_due_to(&self, id: EndpointId) -> bool {
        self.sessions.get(id).is_some_and(|session| {
            session
                .stream
                .sent_kills
                .is_report_due(&self.enforcement.kills)
        })
    }

    pub(crate) fn report_to(&mut self, id: EndpointId, now: MonoTime) -> Report {
        self.sync_names();
        self.evict_idle_keys(now);
        let Some(session) = self.sessions.get_mut(id) else {
            return Report::default();
        };
        let routing = self.routing.as_ref();
        let is_wanted =
            |bucket| routing.is_none_or(|routing| routing.assignment.is_subscribed(bucket, id));
        let subscribed = session.subscribe(self.buckets.len(), is_wanted);
        let greets = session.greet();
        let greeting = if greets {
            self.greeting(id)
        } else {
            Greeting::default()
        };
        let unapplied = self.unapplied(id);
        let Some(session) = self.sessions.get_mut(id) else {
            return Report::default();
        };
        // The instance of a leader is named only to an aggregator that follows another one.
        let mut leader = self.directives.leader;
        if leader == session.sequence.leader() {
            leader = leader.map(|leader| leader.epoch.into());
        }
        let mut report = Report {
            greeting,
            modes: session.changed_modes(unapplied),
            time: Some(now),
            lead: leader.into(),
            clients: ClientCounts {
                killed_locally: u32::from(self.enforcement.observes),
                quota_store_down: u32::from(self.table.layered.is_store_down()),
                ..ClientCounts::default()
            },
            subscriptions: subscribed
                .into_iter()
                .map(|bucket| self.buckets[bucket].clone())
                .collect::<Vec<_>>()
                .into(),
            ..Report::default()
        };
        let (registry, table, evidence) = (&self.registry, &self.table, &mut self.evidence);
        let counts_of = |key| {
            let is_draining = routing.is_some_and(|routing| routing.is_draining(key));
            if is_draining {
                Counts::ZERO
            } else {
                registry.counts(table, KeyId(key))
            }
        };
        let on_increase = |key, new| evidence.add(table, registry.places(), key, new);
        session.report_counts(&mut report, registry.keys(), counts_of, on_increase);
        // The number of the report, which is set by now, decides if all generations are repeated.
        let sent_kills = &mut session.stream.sent_kills;
        report.kills = sent_kills.next(&self.enforcement.kills, report.seq);
        if report.time.is_some() {
            let has_evidence = session.take_evidence_turn(now);
            let interval = session.report_interval;
            if has_evidence {
                self.report_evidence(id, &mut report);
            }
            if self.is_measurement_due(now, interval) {
                self.measure(now);
            }
        }
        report
    }

    fn owns(&self, id: EndpointId, bucket: usize) -> bool {
        self.routing
            .as_ref()
            .is_none_or(|routing| routing.assignment.owner(bucket) == Some(id))
    }

    /// Returns the buckets of an aggregator whose directed mode is carried out only in part, because of the kill
    /// switch of this process or of a kill that the directive did not know.
    fn unapplied(&self, id: EndpointId) -> BTreeSet<Bucket> {
        let is_unapplied = |(at, bucket): &(usize, &Bucket)| {
            let terms = self
                .directives
                .get(bucket)
                .filter(|_| self.owns(id, *at))
                .map(Posted::terms);
            terms.is_some_and(|terms| self.enforcement.mode(bucket, terms) < terms.mode)
        };
        let buckets = self.buckets.iter().enumerate().filter(is_unapplied);
        buckets.map(|(_, bucket)| bucket.clone()).collect()
    }

    /// Returns true if the offered rates should be measured with a report. With several aggregators the tick does it
    /// after the first.
    ///
    /// The first measurement waits for a report with counts: before that the aggregator knows
    /// nothing of this client's traffic, and a share of the rest would look like all of it. Two
    /// reports can follow each other immediately when a stream breaks or ends, and a rate over so
    /// little time is noise.
    fn is_measurement_due(&self, now: MonoTime, interval: Duration) -> bool {
        let Some(at) = self.publisher.guards.measured else {
            return true;
        };
        self.routing.is_none() && now.since(at) >= interval / 2
    }

    fn report_evidence(&mut self, id: EndpointId, report: &mut Report) {
        let mut collected = Evidence::default();
        for (at, bucket) in self.buckets.iter().enumerate() {
            if !self.owns(id, at) {
                continue;
            }
            let posted = self.directives.get(bucket);
            let stance = posted.map(|posted| self.enforcement.stance(bucket, posted));
            let cohort = stance.map(|stance| (stance.mode, stance.division()));
            self.evidence
                .collect(&self.table, at, bucket, cohort, &mut collected);
        }
        report.evidence = collected;
    }
}

// === Directives ===

impl Subscription {
    pub(crate) fn apply(
        &mut self,
        id: EndpointId,
        now: MonoTime,
        message: Directives,
    ) -> Result<(), StaleDirective> {
        self.publisher.set_time(now);
        self.on_answer();
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(());
        };
        let kills = &mut self.enforcement.kills;
        // Kill generations and the acknowledgement come before the check of the epoch: both hold even if the
        // directives are stale.
        let have_kills_changed = kills
            .merge_directives(&message)
            .inspect_err(|_| self.rejected += 1)?;
        kills.merge_drill(message.kills.drill);
        session.acknowledge(message.echo, message.parent);
        let leader = message.lead.leader;
        if let Some((held, got)) = self.directives.leader.zip(leader) {
            let name = || {
                self.routing
                    .as_ref()
                    .and_then(|routing| routing.assignment.name(id))
            };
            let peer = || {
                name().map_or("the aggregator".to_owned(), |name| {
                    format!("aggregator {name}")
                })
            };
            if held.is_rival_of(got) {
                self.other_controllers.note(
                    now,
                    held.max(got),
                    held.min(got),
                    Role::Aggregator,
                    peer,
                );
            }
        }
        let accepted = self
            .directives
            .check_leader(leader)
            .and_then(|()| session.accept(now, &message));
        if accepted.is_ok() {
            self.directives.follow(leader);
        } else {
            self.rejected += 1;
        }
        if let (Some(routing), Some(_)) = (&mut self.routing, message.parent) {
            routing.assignment.liveness.on_live(now, id);
        }
        let mut changed = BTreeSet::new();
        if accepted.is_ok() {
            self.apply_standings(id, &message.standings);
            self.apply_catalogue(id, &message.catalogue);
            let epoch = message.lead.epoch();
            for directive in message.buckets {
                changed.extend(self.apply_directive(id, epoch, directive));
            }
        }
        if have_kills_changed {
            self.publish_all();
        } else {
            changed.into_iter().for_each(|bucket| self.publish(bucket));
        }
        if accepted.is_ok() {
            message
                .grants
                .into_iter()
                .for_each(|(bucket, tokens)| self.apply_grant(id, &bucket, tokens));
        }
        accepted
    }

    fn apply_standings(&mut self, id: EndpointId, standings: &[(KeyId, Standing)]) {
        for (key, standing) in self.own_keys(id, standings) {
            self.with_key(id, key, |publisher, table, published| {
                publisher.set_standing(table, published, key, standing);
            });
        }
    }

    /// Takes the classes of names that the catalogue has.
    fn apply_catalogue(&mut self, id: EndpointId, news: &CatalogueNews) {
        let CatalogueNews { hash, keys, .. } = news;
        let mut classes = self.own_keys(id, keys);
        let session = self.sessions.get_mut(id).filter(|_| hash.is_some());
        if let Some(session) = session {
            let is_first = !std::mem::replace(&mut session.stream.knows_catalogue, true);
            let is_other = std::mem::replace(&mut self.catalogue, *hash) != *hash;
            // A parent that did not know the former catalogue cannot tell which of its names have left.
            if is_first && is_other {
                let gone = self.publisher.names.catalogued();
                classes.splice(..0, gone.map(|key| (key, Tenant::default_class())));
            }
        }
        for (key, class) in classes {
            self.with_key(id, key, |publisher, table, published| {
                publisher.set_catalogued(table, published, key, &class);
            });
        }
    }

    /// Returns the values of keys by their ids here instead of those on the stream of an aggregator.
    fn own_keys<T: Clone>(&self, id: EndpointId, values: &[(KeyId, T)]) -> Vec<(u32, T)> {
        let Some(session) = self.sessions.get(id) else {
            return Vec::new();
        };
        let keys = session.keys_of(values.iter().map(|(id, _)| *id));
        let each = keys.into_iter().zip(values);
        each.filter_map(|(key, (_, value))| Some((key?, value.clone())))
            .collect()
    }

    /// Calls `set` for a key in a bucket that an aggregator owns.
    fn with_key(
        &mut self,
        id: EndpointId,
        key: u32,
        set: impl FnOnce(&mut Publisher, &Table, Published<'_>),
    ) {
        let at = self.table.keys.owner_of(key) as usize;
        let is_registered = (key as usize) < self.registry.keys().len();
        let bucket = self.buckets.get(at).filter(|_| self.owns(id, at));
        let Some(bucket) = bucket.filter(|_| is_registered) else {
            return;
        };
        let posted = self.directives.get(bucket);
        let published = Published {
            id: at as u32,
            bucket,
            stance: posted.map(|posted| self.enforcement.stance(bucket, posted)),
            enforcement: &self.enforcement,
            registry: &self.registry,
        };
        set(&mut self.publisher, &self.table, published);
    }

    fn greeting(&self, id: EndpointId) -> Greeting {
        Greeting {
            identity: Some(self.identity.clone()),
            established: self.established(id),
            ..Greeting::default()
        }
    }

    /// Returns the names that are held as established, for an aggregator that owns their buckets
    /// and may have restarted: the names with the most requests.
    fn established(&self, id: EndpointId) -> BTreeSet<Key> {
        let is_owned = |key: u32| self.owns(id, self.table.keys.owner_of(key) as usize);
        let keys = (0..self.registry.keys().len() as u32)
            .filter(|key| self.publisher.names.of(*key).established && is_owned(*key));
        let mut keys: Vec<(u64, u32)> = keys
            .map(|key| (self.table.counters.counts(key).offered, key))
            .collect();
        keys.sort_unstable_by_key(|(offered, _)| Reverse(*offered));
        let most = keys.into_iter().take(ESTABLISHED_MAX);
        most.map(|(_, key)| self.registry.keys()[key as usize].clone())
            .collect()
    }

    fn apply_grant(&mut self, id: EndpointId, bucket: &Bucket, tokens: TokenCount) {
        let Some(at) = self.buckets.iter().position(|known| known == bucket) else {
            return;
        };
        if self.owns(id, at) {
            self.publisher.guards.grant(&self.table, at as u32, tokens);
        }
    }

    /// Applies a directive of an aggregator, if that is the owner of the bucket. Returns the id of the bucket
    /// if it has changed. A directive for a bucket that this client does not know takes no room.
    fn apply_directive(
        &mut self,
        id: EndpointId,
        epoch: Option<Epoch>,
        mut directive: BucketDirective,
    ) -> Option<usize> {
        let bucket = self
            .buckets
            .iter()
            .position(|bucket| *bucket == directive.bucket)?;
        self.enforcement.kills.cap_knowledge(&mut directive);
        let Some(routing) = &self.routing else {
            return self.directives.apply(&directive).then_some(bucket);
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session.stream.received.apply(&directive);
        }
        let is_owner = routing.assignment.owner(bucket) == Some(id);
        (is_owner && self.apply_of_owner(bucket, epoch, directive)).then_some(bucket)
    }

    /// Applies all that the owner of a bucket has sent, after a move or a freeze.
    pub(super) fn apply_received(&mut self, bucket: usize) {
        let owner = self
            .routing
            .as_ref()
            .and_then(|routing| routing.assignment.owner(bucket));
        let Some(session) = owner.and_then(|owner| self.sessions.get(owner)) else {
            return;
        };
        let Some(whole) = session.stream.received.since(&self.buckets[bucket], 0) else {
            return;
        };
        if self.apply_of_owner(bucket, session.sequence.epoch(), whole) {
            self.publish(bucket);
        }
    }

    /// Applies a directive of a bucket's owner, unless the current one has a later epoch. Returns
    /// true if it changed anything.
    ///
    /// Ratios, guards, the pool and the cut are left out while the bucket drains or has just moved: the
    /// owner does not know then what they should be. A bucket without any directive takes them anyway.
    fn apply_of_owner(
        &mut self,
        bucket: usize,
        epoch: Option<Epoch>,
        mut directive: BucketDirective,
    ) -> bool {
        let Some(routing) = &mut self.routing else {
            return false;
        };
        if !routing.accept_epoch(bucket, epoch) {
            self.rejected += 1;
            return false;
        }
        if !routing.assignment.ratios_apply(bucket)
            && self.directives.get(&directive.bucket).is_some()
        {
            directive
                .keys
                .iter_mut()
                .for_each(|key| key.values = Values::default());
            (directive.terms.pool, directive.terms.cut) = (None, None);
            directive.terms.plans.clear();
        }
        self.directives.apply(&directive)
    }
}

impl Child for Subscription {
    fn on_open(&mut self, _now: MonoTime) {
        self.open_stream(ONLY);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.report_to(ONLY, now)
    }

    fn on_directives(
        &mut self,
        now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        self.apply(ONLY, now, directives)
    }

    fn is_report_due(&self) -> bool {
        self.is_report_due_to(ONLY)
    }

    fn on_farewell_read(&mut self, _now: MonoTime) {
        self.on_read_by(ONLY);
    }

    fn report_interval(&self) -> Duration {
        self.sessions.report_interval()
    }
}
