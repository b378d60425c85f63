//! The recovery of stages that the controller has lost: aggregators give back the modes that an earlier
//! controller sent them.

use std::collections::BTreeMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::Epoch;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;

use crate::aggregators::AggregatorKey;
use crate::brain::Brain;
use crate::rollout::Claim;

impl Brain {
    /// Returns true while aggregators are believed, because this controller has started without a state.
    pub(in crate::brain) fn recovers(&mut self, now: MonoTime) -> bool {
        self.rollouts
            .recovery
            .take_if(|recovery| now >= recovery.until);
        self.rollouts.recovery.is_some()
    }

    /// Notes that the state is older than the fleet: because of an aggregator, this controller begins the epoch
    /// `next`.
    pub(in crate::brain) fn note_older_state(
        &mut self,
        now: MonoTime,
        (zone, name): &AggregatorKey,
        next: Epoch,
    ) {
        if self.durable.loss.is_none() && !self.recovers(now) {
            let (own, seen) = (self.durable.epoch.0, next.0 - 1);
            self.durable.loss = Some(format!(
                "this state ends at epoch {own}, and aggregator {zone}/{name} has directives of epoch {seen}"
            ));
        }
    }

    /// Takes the reason why the state differs from the state that the fleet knew: an operator
    /// acknowledges it.
    pub(crate) fn acknowledge_loss(&mut self) -> Option<String> {
        let loss = self.durable.loss.take();
        self.pending_saves.note_change(loss.is_some());
        loss
    }

    /// Takes the modes in the greeting of an aggregator that has directives of an earlier controller, and puts
    /// entries of the policy into the stages that they show. Returns true if the state may have changed.
    pub(in crate::brain) fn recover(
        &mut self,
        now: MonoTime,
        place: &AggregatorKey,
        report: &Report,
    ) -> bool {
        let leader = report.lead.leader.unwrap_or_default();
        let is_own = leader.instance == Some(self.downstream.sessions.own());
        if report.greeting.identity.is_none() || is_own || !self.recovers(now) {
            return false;
        }
        let directed = report
            .modes
            .iter()
            .filter_map(|(bucket, mode)| Some((bucket.clone(), mode.directed?)));
        let modes: BTreeMap<Bucket, Mode> = directed.collect();
        let Some(recovery) = self
            .rollouts
            .recovery
            .as_mut()
            .filter(|_| !modes.is_empty())
        else {
            return false;
        };
        let (zone, name) = place;
        self.durable.loss.get_or_insert_with(|| {
            let epoch = leader.epoch.0;
            format!(
                "no state was found, and aggregator {zone}/{name} has directives of an earlier controller, of epoch \
                 {epoch}"
            )
        });
        let killed = report.kills.buckets.keys().cloned().collect();
        recovery
            .claims
            .entry(place.clone())
            .or_insert(Claim { modes, killed });
        for (entry, mode, why) in self.shown_stages() {
            self.durable.recover_stage(&entry, mode, why);
        }
        self.hold_killed_alone();
        true
    }

    /// The stage of each entry that aggregators show, with the reasons. Each aggregator has a vote: its lowest
    /// mode of the entry's buckets. A bucket with its own kill, ended or not, shows nothing about a pattern.
    fn shown_stages(&self) -> Vec<(String, Mode, Vec<String>)> {
        let mut votes: BTreeMap<String, BTreeMap<&AggregatorKey, Mode>> = BTreeMap::new();
        for (place, claim) in self
            .rollouts
            .recovery
            .iter()
            .flat_map(|recovery| &recovery.claims)
        {
            for (bucket, mode) in &claim.modes {
                let entry = self.policies.in_force.entry(bucket);
                let is_meant =
                    |entry: &String| entry == bucket.as_str() || !claim.killed.contains(bucket);
                if let Some(entry) = entry.filter(is_meant) {
                    let lowest = votes
                        .entry(entry)
                        .or_default()
                        .entry(place)
                        .or_insert(*mode);
                    *lowest = (*lowest).min(*mode);
                }
            }
        }
        let settled = votes.into_iter().map(|(entry, votes)| {
            let (mode, why) = settle(
                votes
                    .into_iter()
                    .map(|(place, mode)| (mode, place))
                    .collect(),
            );
            (entry, mode, why)
        });
        settled.collect()
    }

    /// Holds each bucket in shadow that its own kill left there. The stage of its pattern stays.
    fn hold_killed_alone(&mut self) {
        let claims = self
            .rollouts
            .recovery
            .iter()
            .flat_map(|recovery| recovery.claims.values());
        for claim in claims {
            for bucket in claim
                .killed
                .iter()
                .filter(|bucket| claim.modes.get(*bucket) == Some(&Mode::Shadow))
            {
                self.durable.hold_bucket(bucket, &self.policies.in_force);
            }
        }
    }
}

/// Returns the lowest mode of the votes, and the reasons. Of three votes or more, a single lowest one is ignored.
fn settle(mut votes: Vec<(Mode, &AggregatorKey)>) -> (Mode, Vec<String>) {
    let named = |(mode, (zone, name)): &(Mode, &AggregatorKey)| {
        format!("aggregator {zone}/{name} has {mode}")
    };
    votes.sort();
    let mut why = Vec::new();
    if let [lowest, next, _, ..] = votes[..]
        && lowest.0 < next.0
    {
        why.push(format!("{}, and is outvoted", named(&lowest)));
        votes.remove(0);
    }
    let mode = votes.first().map_or(Mode::Shadow, |(mode, _)| *mode);
    why.extend(
        votes
            .iter()
            .take_while(|vote| vote.0 == mode)
            .take(3)
            .map(named),
    );
    (mode, why)
}
