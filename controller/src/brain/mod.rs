//! The brain of a controller: takes reports, the policy and the time, and gives directives. Pure: it decides,
//! and the modules around it read files, serve ports and save.
//!
//! `Brain` itself only sequences its parts. Each part owns one concern:
//! * `Policies`: the current policy, the policy that guardrails hold back, and the traffic of the
//!   last minutes that they judge by.
//! * `DurableState` and `PendingSaves`: the state that outlives a restart, and how much of it is saved.
//! * `Downstream`: the streams of aggregators and the counts already taken from each, the rates of each aggregator and
//!   what it is sent, which of them are sent rates after a start, and which have not reported for too long.
//! * `Leadership`: whether this controller leads, and other controllers that aggregators name.
//! * `Keys` and `Buckets`: the counts of each key, and the law of each bucket.
//! * `ActiveRows`: the rows of the catalogue that are listed.
//! * `Limits`: limits that are learned or queried.
//! * `KillRelay`: the kill generations and drills that aggregators are sent.
//! * `Rollouts`: the evidence and the moves of rollout stages.

mod aggregators;
mod keys;
mod kill;
mod limits;
mod parent;
mod pending_saves;
mod policies;
mod rollout;
#[cfg(test)]
pub(crate) mod tests;
mod tick;
mod traffic;

use std::sync::Arc;

use plimsoll_core::directive::{Board, BucketDirective, Epoch, Terms};
use plimsoll_core::exchange::liveness::Progress;
use plimsoll_core::exchange::sessions::Sessions;
use plimsoll_core::kill::KillRelay;
use plimsoll_core::law::Parameters;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::InstanceId;
use plimsoll_policy::Policy;

use self::keys::Keys;
use self::limits::Limits;
use self::pending_saves::PendingSaves;
use self::policies::Policies;
use self::traffic::TrafficRecord;
use crate::aggregators::Aggregators;
use crate::aggregators::leadership::Leadership;
use crate::aggregators::liveness::Liveness;
use crate::aggregators::takeover::Takeover;
use crate::bucket::{ActiveRows, Buckets, Listing};
use crate::rollout::{Recovery, Rollouts};
use crate::state::DurableState;

pub(crate) use self::aggregators::{ForgetError, display};
pub(crate) use self::limits::{LimitAnswer, LimitChange};
pub(crate) use self::policies::{AckError, Offer, UndoError};

/// Maximum number of aggregators, including those without a stream that still hold a share.
const CHILDREN_MAX: usize = 1_000;
/// Keys at most. Unlisted tenants beyond it count as the class `default` of their bucket; listed ones have room.
const KEYS_MAX: usize = 1_000_000;

/// One controller's state.
#[derive(Debug)]
pub struct Brain {
    pub(crate) policies: Policies,
    durable: DurableState,
    pub(crate) pending_saves: PendingSaves,
    kills: KillRelay,
    clock: Clock,
    parameters: Parameters,
    pub(crate) downstream: Downstream,
    pub(crate) leadership: Leadership,
    pub(crate) keys: Keys,
    pub(crate) buckets: Buckets,
    pub(crate) rows: ActiveRows,
    pub(crate) limits: Limits,
    pub(crate) rollouts: Rollouts,
}

#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) sessions: Sessions,
    pub(crate) aggregators: Aggregators,
    pub(crate) takeover: Takeover,
    liveness: Liveness,
}

#[derive(Debug)]
struct Clock {
    /// The time of the latest tick; at first that of the start.
    at: MonoTime,
    /// The time of day in seconds since 1970; unknown before the first tick.
    unix_s: Option<i64>,
    /// The clock for the silence of children.
    progress: Progress,
    /// The time of the latest search for idle buckets.
    swept: MonoTime,
}

// === impl Brain ===

impl Brain {
    /// The brain of a controller process that begins the next epoch. Nothing is sent before the new epoch is
    /// saved, unless saving fails.
    pub fn new(
        now: MonoTime,
        instance: InstanceId,
        mut durable: DurableState,
        policy: Arc<Policy>,
        parameters: Parameters,
    ) -> Self {
        let has_state = durable.epoch > Epoch::default();
        durable.epoch = Epoch(durable.epoch.0.saturating_add(1));
        // Without a saved policy that of the files is active, even if it was held back before.
        let held = durable
            .held
            .take()
            .filter(|held| *held != policy.hash().to_string());
        let mut rollouts = Rollouts::restored(&durable);
        rollouts.recovery = (!has_state).then(|| Recovery::new(now));
        let mut brain = Self {
            policies: Policies::new(
                Arc::clone(&policy),
                TrafficRecord::restored(&durable.traffic),
            ),
            pending_saves: PendingSaves::default(),
            kills: KillRelay::new(instance),
            clock: Clock {
                at: now,
                unix_s: None,
                progress: Progress::new(now),
                swept: now,
            },
            downstream: Downstream {
                sessions: Sessions::new(instance, CHILDREN_MAX, KEYS_MAX),
                aggregators: Aggregators::default(),
                takeover: Takeover::new(now, !durable.children.is_empty()),
                liveness: Liveness::new(
                    now,
                    parameters.feed_stale,
                    durable.children.iter().cloned(),
                ),
            },
            parameters,
            durable,
            leadership: Leadership::new(now, instance),
            keys: Keys::new(now, KEYS_MAX),
            buckets: Buckets::default(),
            rows: ActiveRows::default(),
            limits: Limits::default(),
            rollouts,
        };
        brain.on_policy(policy);
        brain.durable.held = held;
        brain
    }

    /// Sets the requests/s that a client is believed to decide. Counts of an aggregator above that for each of its
    /// clients, and above 100 times its own past, are cut.
    #[must_use]
    pub fn with_decisions_per_s_max(mut self, decisions_per_s_max: u64) -> Self {
        self.downstream.sessions = self
            .downstream
            .sessions
            .with_decisions_per_s_max(decisions_per_s_max);
        self
    }

    fn add_bucket(&mut self, name: &Bucket, listing: Listing) {
        let policy = &self.policies.in_force;
        let limit = self.limits.of(policy, name);
        self.buckets.add(name, listing).configure(policy, limit);
        self.keys.declare(name);
    }

    /// Adds new keys to their buckets, except to buckets that found no room. Linear in the new keys.
    fn introduce_keys(&mut self) {
        for (id, key) in self.keys.take_new() {
            if let Some(bucket) = self.buckets.states.get_mut(&key.bucket) {
                bucket.tenants.add(id, &key.tenant);
            }
        }
    }

    /// Computes the directives of every aggregator with a stream. They are sent once every change is saved.
    fn post(&mut self) {
        self.settle_kills();
        let (policy, durable, buckets) = (&self.policies.in_force, &self.durable, &self.buckets);
        let sessions = &self.downstream.sessions;
        self.downstream.aggregators.post(|place, instance, board| {
            // A stream begins with all directives, so an aggregator without a stream needs no board.
            let Some(child) = sessions
                .get(instance)
                .filter(|child| child.stream.is_some())
            else {
                *board = Board::default();
                return;
            };
            for bucket in buckets.states.values() {
                if bucket.listing == Listing::Exact || child.is_subscribed(&bucket.name) {
                    board.apply(&bucket.directive(place, policy, durable));
                }
            }
            for (bucket, asked) in buckets
                .unlisted
                .iter()
                .filter(|(bucket, _)| child.is_subscribed(bucket))
            {
                let terms = Terms {
                    unlisted: asked.nearest,
                    ..Terms::default()
                };
                if terms.unlisted.is_some() {
                    board.apply(&BucketDirective {
                        bucket: bucket.clone(),
                        whole: true,
                        terms,
                        keys: Vec::new(),
                    });
                }
            }
        });
    }

    /// Gives a hold to every aggregator that is not sent rates, and posts it. Must follow every arrival and
    /// departure of an aggregator and every change of a limit.
    fn assign_holds(&mut self) {
        let expected = self.expected_aggregators();
        for bucket in self.buckets.states.values_mut() {
            bucket.assign_holds(&self.downstream.aggregators, expected);
        }
        self.post();
    }

    /// The number of aggregators among which a limit is divided evenly while their traffic is unknown.
    fn expected_aggregators(&self) -> usize {
        self.durable
            .children
            .len()
            .max(self.downstream.aggregators.len())
    }

    /// Returns the durable state if it must be saved now, with the number to report to
    /// [`on_saved`](Self::on_saved).
    pub fn unsaved(&mut self) -> Option<(u64, DurableState)> {
        Some((self.pending_saves.take_due()?, self.durable.clone()))
    }

    /// Notes that the state with this number was saved.
    pub fn on_saved(&mut self, number: u64) {
        self.pending_saves.on_saved(number);
    }

    /// Notes that a save failed, and why. Directives are sent unsaved until a later save succeeds.
    pub fn on_save_failed(&mut self, reason: String) {
        self.pending_saves.on_failed(reason);
        self.order_unsaved();
    }

    /// Returns true if every decision is saved.
    pub const fn is_saved(&self) -> bool {
        self.pending_saves.is_saved()
    }

    /// Returns true if every decision may be sent: it is saved, or saving fails.
    pub const fn is_in_effect(&self) -> bool {
        self.pending_saves.is_in_effect()
    }

    /// The current policy.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policies.in_force
    }

    /// The state that outlives a restart.
    pub const fn durable(&self) -> &DurableState {
        &self.durable
    }
}
