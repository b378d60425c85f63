//! The zone as the child of a controller, or of an aggregator on the path to it: rolls counts up and applies
//! directives.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_core::directive::{
    BucketDirective, CatalogueNews, Directives, Posted, StaleDirective, Terms,
};
use plimsoll_core::exchange::{Child, Path};
use plimsoll_core::law::tail::Tail;
use plimsoll_core::names::{Bucket, Key, Name, Tenant};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Greeting, Report, ReportedMode, ReportedNames};

use super::Zone;
use crate::key_counts::Source;
use crate::tails::limits_of;

impl Child for Zone {
    fn on_open(&mut self, _: MonoTime) {
        self.upstream.open();
        // The policy may name fewer buckets by now, but only a controller knows.
        let named = self.board.iter().filter(|(_, posted)| posted.terms().named);
        self.upstream
            .subscriptions
            .open(named.map(|(bucket, _)| bucket));
        self.kills.on_open();
    }

    fn report(&mut self, now: MonoTime) -> Report {
        let counting = !self.warmup.withholds();
        let is_greeting = self.upstream.begin_report();
        let mut report = Report {
            greeting: if is_greeting {
                self.greeting()
            } else {
                Greeting::default()
            },
            time: counting.then_some(now),
            children: self.downstream.connected(),
            clients: self.downstream.clients_below(),
            path: if is_greeting {
                Path::default()
            } else {
                self.path()
            },
            modes: self.reported_modes(is_greeting),
            subscriptions: self.upstream.subscriptions.take(),
            names: ReportedNames {
                tails: self.tails(now),
                limited: self.limited(now),
                asked: self.upstream.catalogue.take_asked(),
                ..ReportedNames::default()
            },
            ..Report::default()
        };
        let lines = &self.keys.lines;
        let keys = if counting { lines.keys() } else { &[] };
        self.upstream
            .outbox
            .fill(&mut report, keys, |line| lines.tally(line));
        self.kills.fill(now, &mut report);
        // The parent takes them only with counts.
        if report.time.is_some() {
            report.names.callers = self.fast_loop.tails.take_callers(now, &self.keys);
        }
        self.upstream
            .finish_report(now, &mut report, &self.downstream.sessions);
        report
    }

    fn on_directives(
        &mut self,
        now: MonoTime,
        mut directives: Directives,
    ) -> Result<(), StaleDirective> {
        // Kill generations and acknowledgements are taken before the epoch check: both hold even if the directives
        // are stale. Only a message with an impossible kill generation is rejected whole.
        if self
            .kills
            .on_directives(now, &directives)
            .inspect_err(|_| self.counters.stale += 1)?
        {
            self.on_kill_change(now);
        }
        self.join_drill(now, directives.kills.drill);
        self.upstream.on_acknowledgement(&directives);
        let is_new_policy = self
            .upstream
            .accept(now, &directives)
            .inspect_err(|_| self.counters.stale += 1)?;
        if is_new_policy {
            self.upstream.subscriptions.ask_again();
        }
        let mut decided = is_new_policy || self.schedule.pushes.is_new_epoch(self.upstream.epoch());
        if directives.lead.leader.is_some() {
            self.upstream.subscriptions.on_epoch(now);
        }
        // A parent without a controller does not know whether there is a catalogue.
        let is_reclassed =
            directives.lead.leader.is_some() && self.take_catalogue(&directives.catalogue);
        let mut is_regrouped = is_new_policy || is_reclassed;
        for directive in &mut directives.buckets {
            self.kills.kills().cap_knowledge(directive);
            if !self.admit(now, directive) {
                continue;
            }
            let held = self.board.get(&directive.bucket);
            // Names with a plan are of the tenant's own line once its row is listed.
            is_regrouped |= held.is_none_or(|held| {
                let mut tenants = directive.keys.iter().map(|key| &key.tenant);
                let is_new =
                    |tenant: &Tenant| !tenant.is_class() && held.own(tenant.as_str()).is_none();
                self.upstream.catalogue.hash.is_some() && tenants.any(is_new)
            });
            decided |= is_decision(directive, held);
            self.board.apply(directive);
            is_regrouped |= self.relist(now, directive);
            if let Some(posted) = self.board.get(&directive.bucket) {
                self.fast_loop.on_directive(directive, posted);
            }
        }
        if let Some(limits) = directives.limits.take() {
            self.fast_loop.tails.limited.set_parts(limits);
        }
        if is_regrouped {
            self.regroup();
        }
        self.upstream
            .on_applied(now, &directives, &mut self.downstream.sessions);
        self.warmup.on_expected(directives.children);
        if decided {
            self.schedule.pushes.on_decision(now);
        }
        if self.schedule.is_due_on_message(now) {
            self.direct(now, !directives.buckets.is_empty());
        }
        Ok(())
    }

    fn is_report_due(&self) -> bool {
        self.kills.is_report_due()
    }

    fn has_downstream_changes(&mut self) -> bool {
        let (head, version) = (self.head(), self.downstream.version());
        self.schedule.pushes.has_changed(head, version)
    }

    fn farewell(&mut self, now: MonoTime) -> Report {
        // While clients are connected this is a restart, and the zone's share must be held for them.
        let leaving = self.downstream.connected() == 0;
        Report {
            leaving,
            ..self.report(now)
        }
    }

    fn report_interval(&self) -> Duration {
        // A controller leaves the interval to the zone, which rolls up once a tick. An aggregator
        // asks for more reports, as it does of its clients: two reports in one of its roll-ups and
        // none in the next would look like traffic that stops and starts.
        self.upstream
            .freshness
            .interval
            .unwrap_or(self.parameters.tick)
    }
}

impl Zone {
    /// Takes what the catalogue says of names. Returns true if the class of one has changed.
    fn take_catalogue(&mut self, news: &CatalogueNews) -> bool {
        self.downstream.aggregators.on_catalogued(&news.names);
        let keys = &self.keys;
        let of = |source| {
            let all = keys.iter().filter(move |(.., of)| of.source == source);
            let unplanned = all.filter(|(_, key, _)| key.tenant.plan().is_none());
            unplanned.map(|(_, key, _)| &key.tenant)
        };
        // Tenants that are listed because of their row are, while the controller knows of their requests.
        let names = || of(Source::Listed).chain(of(Source::Name));
        self.upstream.catalogue.on_news(news, names)
    }

    fn greeting(&self) -> Greeting {
        Greeting {
            identity: Some(self.identity.clone()),
            version: Name::new(env!("CARGO_PKG_VERSION")).ok(),
            holds: self.holds(),
            ..Greeting::default()
        }
    }

    /// The demand of the classes that cut names.
    fn tails(&self, now: MonoTime) -> BTreeMap<Key, Tail> {
        let cut = self.fast_loop.tails.cut_classes(now);
        cut.map(|(line, tail)| (self.keys.lines.keys()[line.index()].clone(), tail))
            .collect()
    }

    /// The names that may exceed their tenant limit over all zones.
    fn limited(&mut self, now: MonoTime) -> Vec<(Key, Rate)> {
        let mut limits = HashMap::new();
        for (bucket, posted) in self.board.iter() {
            for (tenant, limit) in limits_of(posted) {
                let class = Key {
                    bucket: bucket.clone(),
                    tenant: tenant.clone(),
                };
                limits.extend(self.keys.line(&class).map(|line| (line, limit)));
            }
        }
        self.fast_loop.tails.find_limited(now, &self.keys, &limits)
    }

    fn reported_modes(&mut self, is_greeting: bool) -> BTreeMap<Bucket, ReportedMode> {
        let (below, clients) = (
            self.downstream.sessions.unapplied(),
            self.downstream.clients_below().connected,
        );
        let is_led = self.upstream.epoch().is_some();
        let modes = self
            .board
            .iter()
            .filter(|_| is_led)
            .map(|(bucket, posted)| {
                let directed = posted.terms().mode;
                let is_killed_here = self.kills.mode(bucket, posted.terms()) < directed;
                let below = below.get(bucket).copied().unwrap_or_default();
                (
                    bucket,
                    directed,
                    if is_killed_here { clients } else { below },
                )
            });
        self.upstream.reported_modes.take(is_greeting, modes)
    }

    /// The longest chain below. A greeting has none: this process may not know yet how many aggregators are
    /// above it, and its parent would refuse it for a child that it should have refused itself.
    fn path(&self) -> Path {
        self.downstream
            .aggregators
            .path(self.upstream.freshness.hops.saturating_add(1))
    }
}

/// Returns true if a directive carries a decision of an operator or a rollout rule: anything but rates,
/// holds and the shares of new names, which change all the time, and the terms of coherent coins, which follow from a new epoch.
fn is_decision(directive: &BucketDirective, held: Option<&Posted>) -> bool {
    let Some(held) = held else { return true };
    let decided = |terms: &Terms| Terms {
        hold: None,
        headroom: None,
        presences: None,
        new_share: None,
        plans: BTreeMap::new(),
        coherence: None,
        // Absent quotas are unchanged.
        quotas: terms.quotas.clone().or_else(|| held.terms().quotas.clone()),
        ..terms.clone()
    };
    decided(&directive.terms) != decided(held.terms())
        || directive.keys.iter().any(|key| {
            held.own(key.tenant.as_str()).is_none_or(|values| {
                key.values.entitlement.is_some() && key.values.entitlement != values.entitlement
            })
        })
}
