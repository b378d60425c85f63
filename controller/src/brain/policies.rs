//! The current policy, the policy that guardrails hold back until an operator acknowledges it, and the undo: the policy
//! before the last change is active again, and the undone one is held back until its files change.

use std::sync::Arc;

use plimsoll_core::names::Tenant;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::{Difference, Policy, PolicyError, PolicyHash, PolicyTexts, differences};

use super::Brain;
use super::traffic::TrafficRecord;
use crate::bucket::Listing;
use crate::state::{DurableState, Undone};

/// Characters of a wrong hash that are repeated in an error, at most.
const HASH_CHARS_MAX: usize = 64;
/// The reason to hold back a policy that guardrails would pass now, and that was held back earlier.
const HELD_BEFORE: &str = "held back earlier, and not acknowledged";

/// A policy that is held back, with its differences from the current policy and the reasons to hold it.
#[derive(Clone, Debug)]
pub(crate) struct HeldPolicy {
    pub(crate) policy: Arc<Policy>,
    pub(crate) differences: Vec<Difference>,
    pub(crate) reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Taken,
    /// The policy waits to be acknowledged. Its kill switch and its lower modes are active already, unless an operator has
    /// undone it.
    Held,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    #[error("no policy is held back: {in_force} is in force")]
    Nothing { in_force: PolicyHash },
    /// The files have changed since they were read, so that they are not what was reviewed.
    #[error(
        "the files have changed since {held} was read, they are {on_disk} now: look at them with `plimsoll diff`"
    )]
    Changed {
        held: PolicyHash,
        /// The hash of the files.
        on_disk: PolicyHash,
    },
    /// The acknowledged policy differs from the held one.
    #[error("the policy that is held back is {held}, not {asked}: look at it with `plimsoll diff`")]
    Other { held: PolicyHash, asked: String },
}

/// Why the last change of the policy cannot be undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    #[error(
        "there is no policy to return to: one step back is kept, from the last change of the policy"
    )]
    Nothing,
    #[error("this build refuses the policy before the last change: {0}")]
    Unreadable(#[from] PolicyError),
    #[error(
        "the policy in force kills the fleet, and an undo ends no kill: write `kill_switch: false` into the file"
    )]
    Kill,
    #[error(
        "guardrails hold the policy before the last change back: {}; `plimsoll undo --release` returns to it anyway", .0.join("; ")
    )]
    Held(Vec<String>),
    #[error("the policy has changed meanwhile: look at it with `plimsoll undo`")]
    Changed,
}

#[derive(Debug)]
pub(crate) struct Policies {
    pub(crate) in_force: Arc<Policy>,
    pub(crate) held: Option<HeldPolicy>,
    /// Why the files as they are now were refused, if they were.
    pub(crate) refused: Option<String>,
    /// The time of day of the first tick since, in seconds since 1970.
    pub(crate) refused_since_s: Option<i64>,
    /// The time of day of the first tick of the policy in force, in seconds since 1970; `None` if it has been in force
    /// since the start.
    pub(crate) in_force_since_s: Option<i64>,
    /// True from the replacement of the policy in force until the next tick.
    is_new: bool,
    /// The traffic of the last minutes, which guardrails judge by.
    pub(super) traffic: TrafficRecord,
}

// === impl Policies ===

impl Policies {
    pub(super) const fn new(in_force: Arc<Policy>, traffic: TrafficRecord) -> Self {
        Self {
            in_force,
            held: None,
            refused: None,
            refused_since_s: None,
            in_force_since_s: None,
            is_new: false,
            traffic,
        }
    }

    pub(crate) fn hold(&mut self, policy: Arc<Policy>, reasons: Vec<String>) {
        let differences = differences(&self.in_force, &policy);
        self.held = Some(HeldPolicy {
            policy,
            differences,
            reasons,
        });
    }

    /// Notes since when a policy is in force, and since when the files are refused.
    pub(super) fn note_time(&mut self, unix_s: i64) {
        if std::mem::take(&mut self.is_new) {
            self.in_force_since_s = Some(unix_s);
        }
        let since_s = self.refused_since_s.unwrap_or(unix_s);
        self.refused_since_s = self.refused.is_some().then_some(since_s);
    }

    pub(super) fn replace(&mut self, policy: Arc<Policy>) {
        (self.in_force, self.held, self.refused) = (policy, None, None);
        self.is_new = true;
    }

    /// The policy held back, if an operator acknowledges it by its hash, and the files are still the same.
    ///
    /// # Errors
    /// If no policy is held back, or another one, or if the files have changed.
    pub(crate) fn acknowledged(
        &self,
        hash: &str,
        on_disk: PolicyHash,
    ) -> Result<Arc<Policy>, AckError> {
        let Some(HeldPolicy { policy, .. }) = &self.held else {
            return Err(AckError::Nothing {
                in_force: self.in_force.hash(),
            });
        };
        if policy.hash().to_string() != hash {
            let asked = hash.chars().take(HASH_CHARS_MAX).collect();
            return Err(AckError::Other {
                held: policy.hash(),
                asked,
            });
        }
        if policy.hash() != on_disk {
            return Err(AckError::Changed {
                held: policy.hash(),
                on_disk,
            });
        }
        Ok(Arc::clone(policy))
    }
}

// === impl Brain ===

impl Brain {
    /// Notes since when policies are in force, held back or refused. Must follow each tick of the clock.
    pub(super) fn note_policies(&mut self, unix_s: i64) {
        self.policies.note_time(unix_s);
        let held = self.policies.held.as_ref();
        let held_since = held.map(|held| {
            let hash = held.policy.hash().to_string();
            let since_s = self.durable.held_since_s(&hash).unwrap_or(unix_s);
            (hash, since_s)
        });
        self.pending_saves
            .note_wanted(self.durable.held_since != held_since);
        self.durable.held_since = held_since;
    }

    /// Returns true before the first tick if guardrails or an undo held this policy back in an earlier process.
    pub(crate) fn held_before(&self, hash: &PolicyHash) -> bool {
        let durable = &self.durable;
        let undone = durable.undone.as_ref().map(|undone| &undone.hash);
        let hash = Some(hash.to_string());
        self.clock.unix_s.is_none() && (durable.held == hash || undone == hash.as_ref())
    }

    /// Holds the policy of the files back until the change is recorded. Its kill switch
    /// and its lower modes are active immediately. It must be [offered](Self::offer) again once it
    /// is recorded.
    pub(crate) fn hold_unlogged(&mut self, policy: Arc<Policy>, why: String) {
        let policy = self.rows.list_in(policy);
        self.policies.refused = None;
        let before = self.durable.clone();
        self.durable.on_unlogged(&policy, &self.policies.in_force);
        self.policies.hold(policy, vec![why]);
        self.settle_modes(&before);
    }

    /// Notes that the files are those of the current policy again. Returns false if another one is held back, which an
    /// [offer](Self::offer) recalls.
    pub(crate) fn recalls_nothing(&mut self) -> bool {
        self.policies.refused = None;
        self.policies.held.is_none()
    }

    /// Activates the policy of the files, or holds it back if guardrails find a reason.
    pub(crate) fn offer(&mut self, policy: Arc<Policy>) -> Offer {
        let policy = self.rows.list_in(policy);
        self.policies.refused = None;
        self.record_traffic(self.clock.at);
        let before = self.durable.clone();
        let undone = self.why_undone(&policy);
        // The files have returned to the current policy, after another one was held back.
        if self.policies.held.is_some() && policy.hash() == self.policies.in_force.hash() {
            self.policies.held = None;
            self.durable.on_recall(&policy);
            self.settle_modes(&before);
            return Offer::Taken;
        }
        if let Some(why) = undone {
            // Its modes are no order: they were undone with it.
            self.policies.hold(policy, vec![why]);
            self.pending_saves.note_change(before != self.durable);
            return Offer::Held;
        }
        let reasons = if policy.guardrails {
            self.reasons_to_hold(&policy)
        } else {
            Vec::new()
        };
        if reasons.is_empty() {
            self.on_policy(policy);
            return Offer::Taken;
        }
        self.durable.on_held(&policy, &self.policies.in_force);
        self.policies.hold(policy, reasons);
        // Saved even if nothing else changed: a restart must judge the policy by this traffic, and hold it back again.
        self.pending_saves.note_change(true);
        self.settle_modes(&before);
        Offer::Held
    }

    /// Ends stages, notes a save if the state differs from `before`, and posts directives.
    fn settle_modes(&mut self, before: &DurableState) {
        self.close_ended_stages();
        self.pending_saves.note_change(*before != self.durable);
        self.post();
    }

    fn reasons_to_hold(&self, offered: &Arc<Policy>) -> Vec<String> {
        let mut reasons = self.trial(offered).reasons();
        if reasons.is_empty() && self.durable.held.as_ref() == Some(&offered.hash().to_string()) {
            reasons.push(HELD_BEFORE.to_owned());
        }
        reasons
    }

    /// Activates the held policy, because an operator acknowledges it by its hash. `on_disk` is the
    /// hash of the files as they are now.
    ///
    /// # Errors
    /// If no policy is held back, or another one, or if the files have changed.
    pub(crate) fn acknowledge(
        &mut self,
        hash: &str,
        on_disk: PolicyHash,
    ) -> Result<PolicyHash, AckError> {
        let policy = self.policies.acknowledged(hash, on_disk)?;
        let hash = policy.hash();
        self.on_policy(policy);
        Ok(hash)
    }

    /// Returns the texts of the policy before the last change, and the current policy.
    ///
    /// # Errors
    /// If there is no policy before, or the undo would end a kill.
    pub(crate) fn undoable(&self) -> Result<(Arc<PolicyTexts>, Arc<Policy>), UndoError> {
        let earlier = self.durable.earlier.clone().ok_or(UndoError::Nothing)?;
        if self.durable.killed_by_file {
            return Err(UndoError::Kill);
        }
        Ok((earlier, Arc::clone(&self.policies.in_force)))
    }

    /// Activates `earlier`, the policy before the last change, and holds the current one back for the reason `why`.
    ///
    /// # Errors
    /// If the policy has changed since it was read.
    pub(crate) fn undo(&mut self, earlier: Arc<Policy>, why: String) -> Result<(), UndoError> {
        let (texts, undone) = self.undoable()?;
        if texts != *earlier.texts() {
            return Err(UndoError::Changed);
        }
        let hash = undone.hash().to_string();
        self.on_policy(earlier);
        self.durable.earlier = None;
        self.durable.undone = Some(Undone {
            hash,
            why: why.clone(),
        });
        self.policies.hold(undone, vec![why]);
        self.pending_saves.note_change(true);
        Ok(())
    }

    /// Returns why a policy was undone, if it was. Any other policy of the files ends that.
    fn why_undone(&mut self, offered: &Policy) -> Option<String> {
        let hash = offered.hash().to_string();
        self.durable.undone.take_if(|undone| undone.hash != hash);
        Some(self.durable.undone.as_ref()?.why.clone())
    }

    /// Activates a policy.
    pub fn on_policy(&mut self, policy: Arc<Policy>) {
        self.rows.on_policy(&policy);
        let policy = self.rows.list_in(policy);
        let before = self.durable.clone();
        self.durable.on_policy(&policy);
        let unix_s = self.durable.ticked_s.unwrap_or(i64::MIN);
        self.rollouts
            .on_edit(&mut self.durable, &self.policies.in_force, &policy, unix_s);
        // A promotion that is refused before the next tick shows the time of this change.
        if let Some(now_s) = self.clock.unix_s {
            self.durable.stamp(now_s);
        }
        self.close_ended_stages();
        self.rollouts.answers.retain_asked(&policy);
        self.policies.replace(Arc::clone(&policy));
        for (bucket, _) in policy.exact_buckets() {
            if !self.buckets.states.contains_key(bucket) {
                self.add_bucket(bucket, Listing::Exact);
            }
        }
        for bucket in self.buckets.on_policy(&policy) {
            if !self.buckets.states.contains_key(&bucket) {
                self.add_bucket(&bucket, Listing::Pattern);
            }
        }
        self.keys.on_policy(&policy);
        self.limits.on_policy(&policy);
        for bucket in self.buckets.states.values_mut() {
            let limit = self.limits.of(&policy, &bucket.name);
            bucket.configure(&policy, limit);
        }
        // Every key is added again below, new ones included.
        self.keys.take_new();
        for (id, key) in self.keys.iter() {
            if let Some(bucket) = self.buckets.states.get_mut(&key.bucket) {
                bucket.tenants.add(id, &key.tenant);
            }
        }
        self.assign_holds();
        self.pending_saves
            .note_change(before != self.durable || self.pending_saves.is_untouched());
        for child in self.downstream.sessions.iter_mut() {
            policy
                .exact_buckets()
                .for_each(|(bucket, _)| child.subscribe(bucket));
        }
    }

    /// Lists the rows of the catalogue that have requests now, and ends those that have none any more.
    pub(super) fn list_active_rows(&mut self, now: MonoTime) {
        let (keys, buckets) = (&self.keys, &self.buckets);
        let has_requests = |tenant: &Tenant| {
            let states = buckets.states.values();
            let mut ids = states.filter_map(|bucket| bucket.tenants.key_of(tenant));
            ids.any(|id| !keys.is_idle(now, id))
        };
        let changes = self.rows.on_tick(now, has_requests);
        if changes.is_empty() {
            return;
        }
        let policy = self.rows.list_in(Arc::clone(&self.policies.in_force));
        self.buckets.on_policy(&policy);
        self.keys.on_policy(&policy);
        for bucket in self.buckets.states.values_mut() {
            bucket.relist(&policy, &changes, |key| self.keys.known(key));
        }
        self.policies.in_force = policy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(limit: u32) -> Arc<Policy> {
        let text = format!("buckets: {{ api: {{ limit: {limit} }} }}\n");
        crate::brain::tests::policy(&text)
    }

    #[test]
    fn held_policy_is_released_by_its_hash() {
        let (good, low) = (policy(1_000), policy(100));
        let mut policies = Policies::new(good, TrafficRecord::default());
        policies.hold(Arc::clone(&low), vec!["a reason".to_owned()]);
        let (name, other) = (low.hash().to_string(), policy(99).hash());
        assert!(matches!(
            policies.acknowledged("0123456789abcdef", low.hash()),
            Err(AckError::Other { .. })
        ));
        let changed = AckError::Changed {
            held: low.hash(),
            on_disk: other,
        };
        assert_eq!(policies.acknowledged(&name, other), Err(changed));
        let released = policies.acknowledged(&name, low.hash()).unwrap();
        policies.replace(released);
        assert_eq!(policies.in_force.hash(), low.hash());
        assert!(matches!(
            policies.acknowledged(&name, low.hash()),
            Err(AckError::Nothing { .. })
        ));
    }
}
