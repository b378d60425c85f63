//! The brain's part in rollouts: hands evidence to [`Rollouts`](crate::rollout::Rollouts), and makes sure
//! that every change of a stage is saved and then sent.

mod recovery;

use plimsoll_core::decision::Mode;
use plimsoll_core::exchange::StreamId;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::{Limit, MonoTime};
use plimsoll_core::report::{Entered, Report};
use plimsoll_core::rollout::gates::Judgement;
use plimsoll_policy::RolloutPolicy;

use super::Brain;
use crate::aggregators::AggregatorKey;
use crate::bucket::BucketState;
use crate::rollout::{EVIDENCE_SPAN_MAX, Promotion, Ready, RolloutError, Rollouts};
use crate::state::Change;

impl Brain {
    /// Records the evidence of a report that was entered. Some evidence is left out and counted:
    /// evidence that may be of an earlier stage, of more requests than there can have been, of
    /// other buckets and modes than the aggregator was sent, and of buckets with an unknown limit,
    /// where nothing could be refused.
    pub(super) fn record_evidence(
        &mut self,
        stream: StreamId,
        report: &Report,
        entered: &Entered,
        place: &AggregatorKey,
    ) {
        let is_recent = entered.span.is_some_and(|span| span <= EVIDENCE_SPAN_MAX);
        let child = self.downstream.sessions.by_stream(stream);
        for (cohort, outcomes) in report.evidence.iter() {
            let bucket = self
                .buckets
                .states
                .get(&cohort.bucket)
                .filter(|bucket| bucket.limit != Limit::Unknown);
            let stage = bucket.and_then(|bucket| self.durable.stages.get(bucket.entry.as_deref()?));
            let counts = is_recent
                && outcomes.is_plausible(entered.decisions_max)
                && child.as_ref().is_some_and(|child| child.is_subscribed(&cohort.bucket))
                // Aggregators pass on evidence of the mode before for a short while. It is left out here.
                && stage.is_some_and(|stage| stage.stage == cohort.mode);
            if counts {
                self.rollouts
                    .weighing
                    .add(place.clone(), outcomes.instances, cohort, outcomes);
            } else {
                self.rollouts.weighing.leave_out(outcomes);
            }
        }
    }

    /// Records the evidence since the last tick, without what a single aggregator reported above its weight.
    fn record_weighed(&mut self) {
        for (cohort, outcomes) in self.rollouts.weighing.take().iter() {
            let entry = self
                .buckets
                .states
                .get(&cohort.bucket)
                .and_then(|bucket| bucket.entry.as_deref());
            if let Some(entry) = entry {
                self.rollouts.record(&self.durable, entry, cohort, outcomes);
            }
        }
    }

    /// Begins evidence anew after limits that fell by themselves and boosts that ended, judges every gate, and makes the
    /// moves that need no operator. With an audit log, promotions are only listed as ready.
    pub(super) fn tick_rollouts(&mut self, now: MonoTime, unix_s: i64) {
        self.record_weighed();
        let renewed = self.renew_evidence(unix_s);
        let stale = self.stalest();
        let (policy, tick) = (&self.policies.in_force, self.parameters.tick);
        let outcome = self
            .rollouts
            .on_tick(&mut self.durable, policy, now, tick, stale.as_ref());
        // A stale aggregator has ended the canaries by now. It is forgotten if it is not expected back.
        let (aggregators, known) = (&self.downstream.aggregators, &self.durable.children);
        let progress = self.clock.progress.now();
        self.downstream.liveness.forget_stale(progress, |place| {
            aggregators.contains(place) || known.contains(place)
        });
        let stamped = self.durable.stamp(unix_s);
        self.pending_saves.note_change(outcome.changed || renewed);
        self.pending_saves.note_wanted(outcome.saves || stamped);
    }

    /// Begins evidence anew after boosts that ended and limits that fell far. Returns true if any evidence began anew.
    fn renew_evidence(&mut self, unix_s: i64) -> bool {
        let (durable, policy) = (&mut self.durable, &self.policies.in_force);
        let before = durable.changes;
        if let Some(from_s) = durable.ticked_s.replace(unix_s) {
            self.rollouts
                .on_boosts_ended(durable, policy, from_s, unix_s);
        }
        for moving in self
            .buckets
            .states
            .values()
            .filter_map(BucketState::moving_limit)
        {
            self.rollouts.on_limit(durable, policy, moving);
        }
        durable.changes != before
    }

    /// Attaches the evidence of ended stages to their changes. Must follow everything that may move
    /// a stage, and precede the replacement of the current policy.
    pub(super) fn close_ended_stages(&mut self) {
        self.rollouts
            .close_ended_stages(&mut self.durable, &self.policies.in_force, self.clock.at);
    }

    /// Follows moves of stages or of the kill switch, if there are `any`: they are saved, and then sent.
    pub(super) fn on_moves(&mut self, any: bool) {
        if any {
            self.close_ended_stages();
            self.pending_saves.note_change(true);
            self.post();
        }
    }

    /// Makes a promotion whose gate has passed. Returns false if it does not pass anymore.
    pub(crate) fn promote_ready(&mut self, ready: &Ready) -> bool {
        let has_moved = self.rollouts.promote_ready(&mut self.durable, ready);
        self.on_moves(has_moved);
        has_moved
    }

    /// Returns the change that [`promote`](Self::promote) would make now.
    ///
    /// # Errors
    /// As for [`promote`](Self::promote).
    pub(crate) fn preview_promotion(
        &self,
        now: MonoTime,
        promotion: Promotion<'_>,
    ) -> Result<Change, RolloutError> {
        let (mut durable, policy) = (self.durable.clone(), &self.policies.in_force);
        let stale = self.stalest();
        self.rollouts
            .promote(&mut durable, policy, now, stale.as_ref(), promotion)?;
        durable
            .history
            .pop_back()
            .ok_or_else(|| RolloutError::unknown(policy, promotion.entry))
    }

    /// Moves an entry up for an operator.
    ///
    /// # Errors
    /// If the entry is unknown, killed, or in that stage already, or if the gate does not pass.
    pub(crate) fn promote(
        &mut self,
        now: MonoTime,
        promotion: Promotion<'_>,
    ) -> Result<Change, RolloutError> {
        let stale = self.stalest();
        let policy = &self.policies.in_force;
        self.rollouts
            .promote(&mut self.durable, policy, now, stale.as_ref(), promotion)?;
        self.on_operator_move(promotion.entry)
    }

    /// Moves an entry to shadow for an operator. `None` if it is in shadow and no higher mode is pending.
    ///
    /// # Errors
    /// If the policy has no such entry.
    pub(crate) fn abort(
        &mut self,
        entry: &str,
        reason: Option<&Text>,
    ) -> Result<Option<Change>, RolloutError> {
        let moved = Rollouts::abort(&mut self.durable, &self.policies.in_force, entry, reason)?;
        moved.then(|| self.on_operator_move(entry)).transpose()
    }

    /// Returns an entry, or a bucket that was killed without its pattern, to the stage before a kill, or `to` if that is
    /// lower.
    ///
    /// # Errors
    /// As for [`Rollouts::resumed_stage`].
    pub(crate) fn resume(
        &mut self,
        name: &str,
        to: Mode,
        reason: &Text,
    ) -> Result<Change, RolloutError> {
        Rollouts::resume(&mut self.durable, &self.policies.in_force, name, to, reason)?;
        self.on_operator_move(name)
    }

    /// Begins the evidence of an entry anew for an operator.
    ///
    /// # Errors
    /// If the policy has no such entry, or no gate judges it.
    pub(crate) fn reset(&mut self, entry: &str, reason: &Text) -> Result<Change, RolloutError> {
        Rollouts::reset(&mut self.durable, &self.policies.in_force, entry, reason)?;
        self.on_operator_move(entry)
    }

    fn on_operator_move(&mut self, entry: &str) -> Result<Change, RolloutError> {
        self.on_moves(true);
        if let Some(now_s) = self.clock.unix_s {
            self.durable.stamp(now_s);
        }
        let change = self.durable.history.back().cloned();
        debug_assert!(
            change.as_ref().is_some_and(|change| change.entry == entry),
            "a move records its change"
        );
        change.ok_or_else(|| RolloutError::unknown(&self.policies.in_force, entry))
    }

    /// The judgement of the gate out of an entry's present stage. `None` for an enforced entry, and without a stage.
    pub(crate) fn judgement(
        &self,
        now: MonoTime,
        entry: &str,
        rollout: &RolloutPolicy,
    ) -> Option<Judgement> {
        self.rollouts
            .judge(now, &self.durable, entry, rollout, self.stalest().as_ref())
    }
}
