//! The zone as the parent of its children: takes their reports and answers with directives.

use std::collections::BTreeMap;

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{CatalogueNews, GRANTS_MAX, Message, Posted};
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Report, Role};

use super::Zone;
use crate::downstream::Downstream;

impl Parent for Zone {
    fn on_report(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected> {
        // These checks can refuse the report; all come before any change. After them `greet` and `enter` cannot fail:
        // their errors only repeat conditions checked here.
        let child = self.downstream.sessions.check(stream, &report)?.clone();
        let instance = child.instance;
        if child.role == Role::Aggregator {
            let further = self.upstream.freshness.hops.saturating_add(1);
            let is_rooted = self.upstream.freshness.age(now).is_some();
            report
                .path
                .check(self.identity.instance, instance, further, is_rooted)?;
        }
        if report.greeting.identity.is_some() {
            self.greet(now, stream, &report)?;
        }
        self.subscribe(now, stream, &report);
        if child.role == Role::Client {
            self.recall(now, &report);
        }
        self.enter(now, stream, instance, &report)?;
        if report.more {
            return Ok(false);
        }
        if report.leaving {
            self.downstream.remove(instance);
        }
        for tenant in &report.names.asked {
            self.upstream.catalogue.ask(tenant);
            self.downstream.aggregators.note_asked(instance, tenant);
        }
        self.upstream
            .leaders
            .on_report(now, self.upstream.leader(), &child, report.lead);
        Ok(self.take_kills(now, &child, &report))
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
            self.downstream
                .next_message(now, stream, head, values, self.kills.kills(), hops)?;
        message.head.upstream_age = self.upstream.freshness.age(now);
        if values {
            message.head.grants = self.grants(now, stream);
            message.head.standings = self.downstream.take_standings(stream);
        }
        message.head.catalogue = CatalogueNews {
            hash: self.upstream.catalogue.hash,
            ..self.downstream.take_catalogued(stream)
        };
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.downstream.sessions.is_superseded(stream)
    }

    fn children_max(&self) -> usize {
        self.downstream.sessions.children_max()
    }
}

impl Zone {
    /// Grants tokens to a client for buckets that it has just subscribed to.
    fn grants(&mut self, now: MonoTime, stream: StreamId) -> BTreeMap<Bucket, TokenCount> {
        let mut grants = BTreeMap::new();
        let Downstream {
            sessions,
            newcomers,
            client_board,
            ..
        } = &mut self.downstream;
        let Some(client) = sessions
            .by_stream(stream)
            .map(|child| child.identity.instance)
        else {
            return grants;
        };
        let Some(waiting) = newcomers.buckets_of(now, client) else {
            return grants;
        };
        // Keeps the buckets that still wait for their tokens.
        waiting.retain(|bucket| {
            let terms = client_board.get(bucket).map(Posted::terms);
            let Some((pool, clients)) = terms.and_then(|terms| terms.pool.zip(terms.clients))
            else {
                return true;
            };
            if grants.len() >= GRANTS_MAX {
                return true;
            }
            let granted = self.fast_loop.grant(bucket, &pool, clients);
            grants.extend(granted.map(|tokens| (bucket.clone(), tokens)));
            granted.is_none()
        });
        grants
    }

    fn greet(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: &Report,
    ) -> Result<(), StreamRejected> {
        let identity = report
            .greeting
            .identity
            .clone()
            .ok_or(StreamRejected::Greeting)?;
        self.downstream
            .greet(now, stream, identity.clone(), report, &self.board)?;
        self.downstream
            .foreign
            .on_greeting(&self.identity.zone, &identity);
        self.warmup.on_greeting(now, report.lead.leader.is_some());
        // The first directives of a child must count it: a guard divided among fewer clients starts too full.
        // Among many clients one more changes little, and computing directives for each of a returning crowd
        // would delay the others.
        let clients = self.downstream.clients(now);
        if self.downstream.is_undivided() || self.schedule.pushes.is_outgrown_by(clients) {
            self.direct(now, false);
        }
        Ok(())
    }
}
