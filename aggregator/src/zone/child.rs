//! The zone as a child of its controller, or of an aggregator above it: rolls counts up, applies what comes down.

use plimsoll_core::directive::{BucketDirective, Posted, Terms};

use super::*;

impl Child for Zone {
    fn on_open(&mut self, _now: MonoTime) {
        self.outbox.open();
        self.order.open();
        self.rollups.open();
        self.upstream.open();
        self.greeted = false;
        // What nobody above listened to may be of a stage that is over.
        self.evidence.clear();
        (self.kills_told, self.timing_told, self.drill_told) = (0, 0, Drill::default());
        self.ordered.values_mut().for_each(|ordered| ordered.told = None);
        self.unasked = self.asked.iter().cloned().collect();
    }

    fn report(&mut self, now: MonoTime) -> Report {
        let counting = !self.quiet.holds_back();
        let mut report = Report {
            identity: (!self.greeted).then(|| self.identity.clone()),
            time: counting.then_some(now),
            epoch: self.order.epoch().max(self.epoch_below),
            kill: self.kills.fleet(),
            kills: self.kills.since(self.kills_told),
            ordered: self.orders_to_tell(true),
            ended: self.orders_to_tell(false),
            drill: self.kills.drill(),
            spreads: self.spreads_to_tell(),
            children: self.children(),
            path: self.below.path(),
            holds: if self.greeted { BTreeMap::new() } else { self.holds() },
            asked: std::mem::take(&mut self.unasked),
            ..Report::default()
        };
        self.greeted = true;
        (self.kills_told, self.drill_told) = (self.kills.version(), self.kills.drill());
        let keys = if counting { self.accounts.keys() } else { &[] };
        self.outbox.fill(&mut report, keys, |id| self.accounts.tally(id));
        self.upstream.on_report(now, report.seq);
        self.ordered.values_mut().for_each(|ordered| ordered.told = ordered.told.or(Some(report.seq)));
        if report.time.is_some() {
            report.evidence = Batches::one(report.seq, std::mem::take(&mut self.evidence));
            self.rollups.sent(report.seq, &self.roster);
        }
        report
    }

    fn on_directives(&mut self, now: MonoTime, mut directives: Directives) -> Result<(), Stale> {
        if let Err((held, got)) = self.kills.check(directives.kill, &directives.kills) {
            self.figures.stale += 1;
            return Err(Stale::KillJump { held, got });
        }
        // A kill is never too old to be heard, and a receipt is for this stream, whoever reigns.
        self.on_confirmed_orders(directives.echo.confirmed);
        if self.kills.merge(directives.kill, &directives.kills) {
            self.stand_by_orders();
            self.on_turn(now);
        }
        self.hear_drill(now, directives.drill);
        self.outbox.on_echo(directives.echo);
        directives.parent.into_iter().for_each(|parent| self.outbox.on_answer(parent));
        if let Err(stale) = self.order.accept(directives.epoch, directives.seq) {
            self.figures.stale += 1;
            return Err(stale);
        }
        let decided = directives.policy_hash.is_some_and(|hash| self.policy_hash != Some(hash));
        self.policy_hash = directives.policy_hash.or(self.policy_hash);
        let mut decided = decided || self.pushes.is_first(self.order.epoch());
        for directive in &mut directives.buckets {
            directive.terms.kill = directive.terms.kill.at_most(self.kills.of(&directive.bucket));
            let held = self.board.get(&directive.bucket);
            decided |= is_decision(directive, held);
            if held.is_none() {
                self.tell_below_of(&directive.bucket);
            }
            self.board.apply(directive);
            if let Some(posted) = self.board.get(&directive.bucket) {
                self.flows.on_directive(directive, posted);
            }
        }
        self.rollups.on_confirmed(directives.echo.confirmed, &mut self.roster);
        self.upstream.on_message(now, &directives);
        self.quiet.on_told(directives.children);
        if decided {
            self.pushes.on_decision(now);
        }
        let due = self.pushes.is_due(now, self.parameters.report_interval, self.parameters.tick);
        if due || self.pushes.is_in_wake(now) {
            self.direct(now, !directives.buckets.is_empty());
        }
        Ok(())
    }

    fn is_report_due(&self) -> bool {
        self.drill_told < self.kills.drill()
    }

    fn has_news(&mut self) -> bool {
        let (head, version) = (self.head(), self.told.version() + self.below.changes());
        self.pushes.has_news(head, version)
    }

    fn farewell(&mut self, now: MonoTime) -> Report {
        // With clients that go on by themselves this is a restart, and their share must be held for them.
        let leaving = self.children() == 0;
        Report { leaving, ..self.report(now) }
    }

    fn report_interval(&self) -> Duration {
        // A controller leaves it to the zone, which rolls up once a tick. An aggregator above asks for more, as of its
        // clients: two reports in one of its own roll-ups and none in the next would look like traffic on and off. What
        // the parameters call the report interval is for the zone's clients.
        let Parameters { tick, .. } = self.parameters;
        self.upstream.interval().unwrap_or(tick)
    }
}

/// Whether a directive says anything that people or rules have decided: all but rates and holds, which move all the time,
/// and what coherent coins draw by, which follows from a new epoch.
fn is_decision(directive: &BucketDirective, held: Option<&Posted>) -> bool {
    let Some(held) = held else { return true };
    let decided = |terms: &Terms| Terms { hold: None, presences: None, coherence: None, ..*terms };
    decided(&directive.terms) != decided(held.terms())
        || directive.keys.iter().any(|key| {
            held.own(key.tenant.as_str()).is_none_or(|values| {
                key.values.entitlement.is_some() && key.values.entitlement != values.entitlement
            })
        })
}
