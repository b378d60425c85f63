//! The zone as the parent of its children: takes their reports, answers with directives.

use super::ingest::Entering;
use super::*;

impl Parent for Zone {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, Refused> {
        Refused::check_claims(&report, self.order.epoch().max(self.epoch_below), &self.kills)?;
        let known = self.roster.by_stream(stream).map(|child| (child.identity.instance, child.identity.role));
        let named = report.identity.as_ref().map(|identity| (identity.instance, identity.role));
        let Some((instance, role)) = known.or(named) else { return Err(Refused::Greeting) };
        if role == Role::Aggregator {
            self.check_path(instance, &report.path)?;
        }
        if known.is_none() {
            self.greet(now, stream, &report)?;
        } else if named.is_some() {
            return Err(Refused::Greeting);
        }
        self.note_buckets(stream, &report);
        let child = self.roster.by_stream(stream).ok_or(Refused::Unknown)?;
        child.heard = now;
        let before = child.books.seq();
        let mut branch = self.below.get_mut(instance);
        let mut entering = Entering {
            arrived: &mut self.arrived,
            now,
            accounts: &mut self.accounts,
            flows: &mut self.flows,
            board: &self.board,
            outbox: &mut self.outbox,
            late_from: LATE.max(self.parameters.report_interval * LATE_INTERVALS),
            all_late: true,
            branch: branch.as_mut().map(|branch| &mut branch.traffic),
            span: None,
        };
        let entered = child.books.enter_into(now, &report, &mut entering)?;
        self.figures.late += entering.finish();
        if let Some(branch) = branch {
            branch.on_report(&report);
        }
        for (stand, outcomes) in report.evidence.after(before) {
            // Of what no policy knows there is nothing to judge.
            if self.board.get(&stand.bucket).is_some() {
                self.evidence.add(stand, outcomes, STANDS_MAX);
            }
        }
        self.figures.unconfirmed += entered.unconfirmed;
        self.figures.homeless += entered.homeless as u64;
        if report.leaving {
            self.roster.remove(instance);
            self.below.remove(instance);
        }
        self.epoch_below = self.epoch_below.max(report.epoch);
        self.timing.on_report(now, instance, role, &report);
        let drills = self.hear_drill(now, report.drill);
        let turned = self.kills.merge(report.kill, &report.kills);
        let ordered = role == Role::Aggregator && self.take_orders(report.ordered, report.ended);
        let turned = self.stand_by_orders() || turned || ordered;
        if turned {
            self.on_turn(now);
        }
        Ok(turned || drills)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        if let Some(instance) = self.roster.close(now, stream) {
            self.below.close(now, instance);
            self.timing.on_close(instance);
        }
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        let head = self.head();
        let upstream_age = self.upstream.age(now);
        let values = !self.quiet.holds_back();
        let child = self.roster.by_stream(stream)?;
        let echo = Echo { covered: child.books.seq(), confirmed: child.confirmed };
        let branch = self.below.get_mut(child.identity.instance);
        let (children, board) = match branch {
            Some(branch) => (Some(branch.children), &mut branch.board),
            None => (None, &mut self.told),
        };
        let mut message = child.next_message(now, head, board, values, echo, &self.kills)?;
        message.head.upstream_age = upstream_age;
        if let Some(children) = children {
            message.head.children = children;
            message.head.above = self.upstream.above().saturating_add(1);
        }
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.roster.is_superseded(stream)
    }
}

impl Zone {
    fn greet(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> Result<(), Refused> {
        let identity = report.identity.clone().ok_or(Refused::Greeting)?;
        match identity.role {
            Role::Client => self.roster.open(now, stream, identity).map(|_| ())?,
            Role::Aggregator => self.open_branch(now, stream, identity, report)?,
        }
        self.quiet.on_greeting(now, report.epoch.is_some());
        // Its first state must know that it is there: a guard divided among fewer starts too full. Where there are many,
        // one more is next to nothing, and working it out again for each of a crowd that returns would starve the others.
        if self.shared.is_none() || self.pushes.are_for_fewer(self.sharing(now)) {
            self.direct(now, false);
        }
        Ok(())
    }

    /// Notes which buckets a child has, and asks the controller for those nobody had before.
    fn note_buckets(&mut self, stream: StreamId, report: &Report) {
        let Some(child) = self.roster.by_stream(stream) else { return };
        // An aggregator hears about what it never asked for, and must be able to ask for it all the same.
        let is_client = child.identity.role == Role::Client;
        let of_keys = report.definitions.values().map(|definition| &definition.key.bucket);
        for bucket in report.asked.iter().chain(of_keys) {
            if child.is_wanted(bucket) && (is_client || self.asked.contains(bucket)) {
                continue;
            }
            let known = self.asked.contains(bucket);
            let no_room = !known && self.asked.len() >= self.bounds.buckets_max;
            if no_room || child.wanted() >= self.bounds.buckets_max {
                self.figures.homeless += 1;
                continue;
            }
            child.wants(bucket);
            if !known {
                self.asked.insert(bucket.clone());
                self.unasked.push(bucket.clone());
                // The class that tenants fold into must find room before they do.
                if let Some(id) = self.accounts.declare(bucket)
                    && let Some(key) = self.accounts.keys().get(id.index())
                {
                    self.flows.introduce(id, key, &self.board);
                    self.outbox.replace(id);
                }
            }
        }
    }
}
