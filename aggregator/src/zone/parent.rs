//! The zone as the parent of its children: takes their reports and answers with directives.

use plimsoll_core::directive::Message;
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{COHORTS_MAX, Identity, Report, Role};

use super::Zone;
use super::ingest::Ingest;

impl Parent for Zone {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, StreamRejected> {
        // Every check that can refuse the report comes first, so that a refused report changes nothing.
        let Identity { instance, role, .. } = *self.downstream.sessions.check(stream, &report)?;
        if role == Role::Aggregator {
            let further = self.upstream.freshness.hops.saturating_add(1);
            report.path.check(self.identity.instance, instance, further)?;
        }
        StreamRejected::check_claims(&report, self.upstream.highest_epoch(), self.kills())?;
        if report.identity.is_some() {
            self.greet(now, stream, &report)?;
        }
        self.subscribe(stream, &report);
        let child = self.downstream.sessions.by_stream(stream).ok_or(StreamRejected::Unknown)?;
        child.last_report = now;
        child.killed_locally = report.killed_locally;
        let before = child.books.seq();
        let mut aggregator = self.downstream.aggregators.by_instance.get_mut(&instance);
        let mut ingest = Ingest {
            buffer: &mut self.buffer,
            now,
            keys: &mut self.keys,
            fast_loop: &mut self.fast_loop,
            board: &self.board,
            outbox: &mut self.upstream.outbox,
            late_from: self.schedule.late_from(),
            is_all_late: true,
            child_traffic: aggregator.as_mut().map(|aggregator| &mut aggregator.traffic),
            span: None,
        };
        let entered = child.books.enter_into(now, &report, &mut ingest);
        // Evidence of a late report may be of a stage that is over.
        let evidence = (!ingest.is_all_late).then(|| report.evidence.after(before));
        self.counters.late += ingest.finish();
        if let Some(aggregator) = aggregator {
            aggregator.on_report(&report);
        }
        for (cohort, outcomes) in evidence.into_iter().flatten() {
            // Without directives there is no rollout to judge.
            if self.board.get(&cohort.bucket).is_some() {
                self.upstream.evidence.add(cohort, outcomes, COHORTS_MAX);
            }
        }
        self.counters.unconfirmed += entered.unconfirmed;
        self.counters.rejected += entered.rejected_keys as u64;
        if report.leaving {
            self.downstream.remove(instance);
        }
        self.upstream.on_claimed_epoch(report.epoch);
        let kills_changed = self.kills.on_report(now, instance, role, &report);
        let is_drill = self.join_drill(now, report.drill);
        if kills_changed {
            self.on_kill_change(now);
        }
        Ok(kills_changed || is_drill)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        if let Some(instance) = self.downstream.close(now, stream) {
            self.kills.on_close(instance);
        }
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        let (head, values) = (self.head(), !self.warmup.withholds());
        let hops = self.upstream.freshness.hops;
        let mut message =
            self.downstream.next_message(now, stream, head, values, self.kills.kills(), hops)?;
        message.head.upstream_age = self.upstream.freshness.age(now);
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.downstream.sessions.is_superseded(stream)
    }
}

impl Zone {
    fn greet(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> Result<(), StreamRejected> {
        let identity = report.identity.clone().ok_or(StreamRejected::Greeting)?;
        self.downstream.greet(now, stream, identity.clone(), report, &self.board)?;
        self.downstream.foreign.on_greeting(&self.identity.zone, &identity);
        self.warmup.on_greeting(now, report.epoch.is_some());
        // The first directives of a child must count it: a guard divided among fewer clients starts too full.
        // Among many clients one more changes little, and computing directives for each of a returning crowd
        // would delay the others.
        let clients = self.downstream.clients(now);
        if self.downstream.is_undivided() || self.schedule.pushes.is_outgrown_by(clients) {
            self.direct(now, false);
        }
        Ok(())
    }

    /// Subscribes a child to the buckets in its report. Buckets that are new here are asked of the parent.
    fn subscribe(&mut self, stream: StreamId, report: &Report) {
        let Some(child) = self.downstream.sessions.by_stream(stream) else {
            debug_assert!(false, "{stream:?} has no session");
            return;
        };
        let subscriptions = &mut self.upstream.subscriptions;
        // An aggregator receives buckets that it never asked for. Its request for one of them must still pass
        // upwards.
        let is_client = child.identity.role == Role::Client;
        let of_keys = report.definitions.values().map(|definition| &definition.key.bucket);
        for bucket in report.subscriptions.iter().chain(of_keys) {
            let is_known = subscriptions.contains(bucket);
            if child.is_subscribed(bucket) && (is_client || is_known) {
                continue;
            }
            if !is_known && subscriptions.is_full() || child.subscription_count() >= subscriptions.buckets_max
            {
                self.counters.rejected += 1;
                continue;
            }
            child.subscribe(bucket);
            // The class that tenants fold into must find room before they do.
            if subscriptions.add(bucket)
                && let Some(id) = self.keys.declare(bucket)
            {
                self.fast_loop.add_key(id, self.keys.key(id), &self.board);
                self.upstream.outbox.replace(id);
            }
        }
    }
}
