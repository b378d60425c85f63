//! The brain as the parent of aggregators: takes their reports, answers with directives.

use super::*;

impl Parent for Brain {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, Refused> {
        Refused::check_claims(&report, Some(self.durable.epoch), &self.kills)?;
        let news = self.news;
        let speaker = self.roster.by_stream(stream).map(|child| child.identity.instance);
        let greets = speaker.is_none();
        let named = report.identity.as_ref().map(|identity| identity.instance);
        if let Some(instance) = speaker.or(named) {
            report.path.check(self.roster.own(), instance, 0)?;
        }
        if greets {
            self.greet(now, stream, &report)?;
        } else if report.identity.is_some() {
            return Err(Refused::Greeting);
        }
        // Whatever reign a child has heard of, this one is later.
        if let Some(claimed) = report.epoch.filter(|claimed| *claimed > self.durable.epoch) {
            self.durable.epoch = Epoch(claimed.0.saturating_add(1));
            self.note_change(true);
        }
        self.learn_kills(&report);
        let drills = self.hear_drill(now, report.drill);
        self.note_buckets(stream, &report);
        if greets || self.news != news {
            self.welcome();
        }
        let child = self.roster.by_stream(stream).ok_or(Refused::Unknown)?;
        child.heard = now;
        let instance = child.identity.instance;
        self.timing.on_report(now, instance, Role::Aggregator, &report);
        let place = (child.identity.zone.clone(), child.identity.name.clone());
        let before = child.books.seq();
        let mut entering = self.keys.entering();
        let entered = child.books.enter_into(now, &report, &mut entering)?;
        let entered = Entered { entries: entering.entries, ..entered };
        self.enter(&place, &report, &entered);
        self.feeds.hear(now, &place);
        self.testify(&report, before);
        if report.leaving {
            self.feeds.leave(&place);
            self.roster.remove(instance);
            self.sources.leave(&place);
            self.drop_place(&place);
            self.welcome();
        }
        Ok(!self.is_saved() || self.news != news || drills)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.roster.close(now, stream).into_iter().for_each(|gone| self.timing.on_close(gone));
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        // Written before it takes effect, so that no restart can take it back.
        if !self.is_in_effect() {
            return None;
        }
        let head = Head {
            epoch: Some(self.durable.epoch),
            policy_hash: Some(self.policy.hash().as_u64()),
            ..Head::of(&self.kills)
        };
        let child = self.roster.by_stream(stream)?;
        let covered = child.books.seq();
        let echo = Echo { covered, confirmed: covered };
        let place = (child.identity.zone.clone(), child.identity.name.clone());
        let mut message =
            child.next_message(now, head, self.boards.get_mut(&place)?, true, echo, &self.kills)?;
        message.head.children = self.sources.children(&place);
        message.head.upstream_age = Some(Duration::ZERO);
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.roster.is_superseded(stream)
    }
}
