//! The stream to the parent: what has been sent on it, what the controller has confirmed, and what the next
//! report carries.

mod catalogue;
mod freshness;
mod leaders;
mod reported_modes;
mod rollups;
mod subscriptions;

use plimsoll_core::directive::{Directives, Epoch, Leader, Sequence, StaleDirective};
use plimsoll_core::exchange::sessions::Sessions;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{InstanceId, Outbox, Report, Weighing};

pub(crate) use catalogue::Catalogue;
use freshness::Freshness;
use leaders::Leaders;
use reported_modes::ReportedModes;
use rollups::Rollups;
use subscriptions::Subscriptions;

#[derive(Debug, Default)]
pub(crate) struct Upstream {
    /// The greeting of the present stream was composed.
    has_greeted: bool,
    sequence: Sequence,
    pub(crate) policy_hash: Option<u64>,
    /// The controller cannot confirm that it leads.
    pub(crate) unconfirmed: bool,
    pub(crate) leaders: Leaders,
    pub(crate) freshness: Freshness,
    rollups: Rollups,
    pub(crate) reported_modes: ReportedModes,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) catalogue: Catalogue,
    pub(crate) outbox: Outbox,
    pub(crate) evidence: Weighing<InstanceId>,
}

impl Upstream {
    pub(crate) fn new(buckets_max: usize) -> Self {
        Self {
            subscriptions: Subscriptions::new(buckets_max),
            ..Self::default()
        }
    }

    /// A new stream begins. Evidence that no parent has received may be of a stage that is over, so it is
    /// dropped.
    pub(crate) fn open(&mut self) {
        self.has_greeted = false;
        self.sequence.open();
        self.freshness.open();
        self.rollups.open();
        self.catalogue.open();
        self.outbox.open();
        self.evidence.discard();
    }

    /// Returns true if the report is the greeting of its stream.
    pub(crate) fn begin_report(&mut self) -> bool {
        !std::mem::replace(&mut self.has_greeted, true)
    }

    /// Completes a report that is about to be sent. One without counts (`time` is absent) carries no
    /// evidence, and the controller's confirmation of it confirms no report of a child.
    pub(crate) fn finish_report(
        &mut self,
        now: MonoTime,
        report: &mut Report,
        sessions: &Sessions,
    ) {
        self.freshness.on_report(now, report.seq);
        report.lead = self.leaders.reported(now, self.leader());
        if report.time.is_some() {
            report.evidence = self.evidence.take();
            self.rollups.sent(report.seq, sessions);
        }
    }

    /// Takes acknowledgements, which hold even if the directives are stale.
    pub(crate) fn on_acknowledgement(&mut self, directives: &Directives) {
        self.outbox.on_echo(directives.echo);
        directives
            .parent
            .into_iter()
            .for_each(|parent| self.outbox.on_answer(parent));
    }

    /// Accepts directives unless they are older than the latest ones. Returns true if they name a new policy.
    ///
    /// # Errors
    /// When they are stale.
    pub(crate) fn accept(
        &mut self,
        now: MonoTime,
        directives: &Directives,
    ) -> Result<bool, StaleDirective> {
        self.leaders
            .on_directives(now, self.leader(), directives.lead.leader);
        self.sequence
            .accept(directives.lead.leader, directives.seq)?;
        let is_new_policy = directives
            .lead
            .policy_hash
            .is_some_and(|hash| self.policy_hash != Some(hash));
        self.policy_hash = directives.lead.policy_hash.or(self.policy_hash);
        self.unconfirmed = directives.lead.unconfirmed;
        Ok(is_new_policy)
    }

    /// Accepted directives were applied: the children's reports in confirmed roll-ups are confirmed too.
    pub(crate) fn on_applied(
        &mut self,
        now: MonoTime,
        directives: &Directives,
        sessions: &mut Sessions,
    ) {
        self.rollups
            .on_confirmed(directives.echo.confirmed, sessions);
        let sent = self.freshness.on_message(now, directives);
        if let Some((leader, sent)) = directives.lead.leader.zip(sent) {
            self.leaders.on_confirmed(leader, sent);
        }
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.sequence.epoch()
    }

    pub(crate) const fn leader(&self) -> Option<Leader> {
        self.sequence.leader()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::directive::SentLead;

    use super::*;

    #[test]
    fn greeting_begins_every_stream() {
        let mut upstream = Upstream::new(1);
        assert!(upstream.begin_report() && !upstream.begin_report());
        upstream.open();
        assert!(upstream.begin_report());
    }

    #[test]
    fn directives_are_taken_once() {
        let mut upstream = Upstream::new(1);
        let directives = Directives {
            lead: SentLead {
                leader: Some(Epoch(3).into()),
                policy_hash: Some(7),
                ..SentLead::default()
            },
            seq: 1,
            ..Directives::default()
        };
        assert_eq!(
            upstream.accept(MonoTime::ZERO, &directives).ok(),
            Some(true),
            "the first policy"
        );
        assert_eq!(upstream.epoch(), Some(Epoch(3)));
        assert!(
            upstream.accept(MonoTime::ZERO, &directives).is_err(),
            "the same sequence number again"
        );
        let next = Directives {
            seq: 2,
            ..directives
        };
        assert_eq!(
            (
                upstream.accept(MonoTime::ZERO, &next).ok(),
                upstream.policy_hash
            ),
            (Some(false), Some(7))
        );
    }
}
