//! The session with one aggregator: one stream after another, the reports sent and the directives received on
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::directive::{Board, Directives, Epoch, Leader, Sequence, StaleDirective};
use plimsoll_core::kill::SentKills;
use plimsoll_core::names::{Bucket, Key, KeyId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{
    Counts, Echo, Handover, InstanceId, Outbox, Report, ReportedMode, Tally,
};

use super::assigned_keys::AssignedKeys;
use super::delivery::Delivery;

/// The interval between reports until the aggregator asks for another one.
pub(crate) const REPORT_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// The interval between reports of evidence: once in each of the controller's cycles is enough.
const EVIDENCE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Session {
    outbox: Outbox,
    keys: Keys,
    pub(super) delivery: Delivery,
    pub(crate) sequence: Sequence,
    pub(crate) report_interval: Duration,
    /// The time when the aggregator last said how old the controller's state is, and that age.
    upstream: Option<(MonoTime, Duration)>,
    evidence_sent: Option<MonoTime>,
    pub(crate) stream: StreamState,
}

#[derive(Default)]
pub(super) enum Keys {
    /// Without several aggregators: a slot of the outbox is the id of a key.
    #[default]
    All,
    Assigned(AssignedKeys),
}

impl Keys {
    /// Returns the key with a slot of the outbox.
    fn of_slot(&self, slot: KeyId) -> Option<u32> {
        match self {
            Self::All => Some(slot.0),
            Self::Assigned(keys) => keys.table_id(slot),
        }
    }
}

#[derive(Default)]
pub(crate) struct StreamState {
    /// By bucket id.
    is_subscribed: Vec<bool>,
    /// The hash of the policy, as the aggregator last named it.
    policy_hash: Option<u64>,
    has_greeted: bool,
    pub(crate) sent_kills: SentKills,
    /// The buckets reported as carried out less than directed.
    pub(crate) sent_unapplied: BTreeSet<Bucket>,
    /// The directives received; empty without several aggregators.
    pub(crate) received: Board,
    /// True once a message has named a catalogue of tenants.
    pub(crate) knows_catalogue: bool,
}

impl Session {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            keys,
            report_interval: REPORT_INTERVAL_DEFAULT,
            ..Self::default()
        }
    }

    pub(crate) fn open(&mut self) {
        self.outbox.open();
        self.delivery.open();
        self.sequence.open();
        self.stream = StreamState::default();
    }
}

// === Reports of modes ===

impl Session {
    pub(crate) fn changed_modes(
        &mut self,
        unapplied: BTreeSet<Bucket>,
    ) -> BTreeMap<Bucket, ReportedMode> {
        let sent = std::mem::replace(&mut self.stream.sent_unapplied, unapplied);
        let now = &self.stream.sent_unapplied;
        let mode = |bucket: &Bucket| ReportedMode {
            directed: None,
            unapplied: now.contains(bucket).into(),
        };
        sent.symmetric_difference(now)
            .map(|bucket| (bucket.clone(), mode(bucket)))
            .collect()
    }
}

// === Directives ===

impl Session {
    /// Treats directives older than `epoch` as stale.
    pub(super) fn raise_epoch(&mut self, epoch: Option<Epoch>) {
        self.sequence.open();
        // Fails only for an epoch that no message could have brought; then the first message decides.
        let _ = self.sequence.accept(
            epoch.map(|epoch| Leader {
                epoch,
                instance: None,
            }),
            1,
        );
        self.sequence.open();
    }

    /// Applies the part of a message that holds even if its directives are stale: the acknowledgement of
    /// reports, and the parent's answer to a new stream.
    pub(crate) fn acknowledge(&mut self, echo: Echo, parent: Option<InstanceId>) {
        self.outbox.on_echo(echo);
        self.delivery.on_covered(echo.covered);
        if let Some(parent) = parent {
            self.outbox.on_answer(parent);
        }
    }

    /// Checks that a message is not stale, and records how old the controller's state is and how often to
    /// report.
    pub(crate) fn accept(
        &mut self,
        now: MonoTime,
        message: &Directives,
    ) -> Result<(), StaleDirective> {
        self.sequence.accept(message.lead.leader, message.seq)?;
        if let Some(age) = message.upstream_age {
            self.upstream = Some((now, age));
        }
        // A new policy may name what the aggregator had no place for.
        if self
            .stream
            .policy_hash
            .is_some_and(|held| message.lead.policy_hash.is_some_and(|new| new != held))
        {
            self.stream.is_subscribed.clear();
        }
        self.stream.policy_hash = message.lead.policy_hash.or(self.stream.policy_hash);
        self.report_interval = message.report_interval.unwrap_or(self.report_interval);
        Ok(())
    }

    /// Counts all reports as acknowledged, because the aggregator has read the last one.
    pub(crate) fn on_read(&mut self) {
        self.delivery.on_covered(self.outbox.seq());
    }

    pub(crate) fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        self.upstream.map(|(at, age)| age + now.since(at))
    }
}

// === Reports ===

impl Session {
    /// Returns true for the first report of a stream, which carries the identity.
    pub(crate) const fn greet(&mut self) -> bool {
        !std::mem::replace(&mut self.stream.has_greeted, true)
    }

    /// Returns the buckets that are wanted and not subscribed to yet on this stream.
    pub(crate) fn subscribe(
        &mut self,
        buckets: usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let subscribed = &mut self.stream.is_subscribed;
        subscribed.resize(buckets, false);
        let new: Vec<usize> = (0..buckets)
            .filter(|id| !subscribed[*id] && is_wanted(*id))
            .collect();
        new.iter().for_each(|id| subscribed[*id] = true);
        new
    }

    /// Adds the counts of this session's keys to a report. `all_keys` are the keys of the limiter
    /// by id, `counts_of` reads the counts of one, and `on_increase` is called with the counts that
    /// were not reported before.
    pub(crate) fn report_counts(
        &mut self,
        report: &mut Report,
        all_keys: &[Key],
        counts_of: impl Fn(u32) -> Counts,
        mut on_increase: impl FnMut(u32, Counts),
    ) {
        let tally = |counts| Tally {
            counts,
            late: Counts::ZERO,
        };
        let keys = &self.keys;
        let names = match keys {
            Keys::All => all_keys,
            Keys::Assigned(keys) => keys.names(),
        };
        let tally_of = |slot| tally(keys.of_slot(slot).map_or(Counts::ZERO, &counts_of));
        let mut decisions = 0;
        let on_increase = |slot, new: Counts| {
            decisions += new.asked();
            if let Some(key) = keys.of_slot(slot) {
                on_increase(key, new);
            }
        };
        self.outbox.fill_with(report, names, tally_of, on_increase);
        if report.time.is_some() {
            self.delivery.on_sent(report.seq, decisions);
        }
    }

    pub(crate) fn take_evidence_turn(&mut self, now: MonoTime) -> bool {
        let is_due = self
            .evidence_sent
            .is_none_or(|at| now.since(at) >= EVIDENCE_INTERVAL);
        if is_due {
            self.evidence_sent = Some(now);
        }
        is_due
    }
}

// === Keys ===

impl Session {
    /// Returns true if exactly these counts of a key were reported here and the controller has confirmed
    /// them.
    pub(crate) fn is_settled(&self, key: u32, counts: Counts) -> bool {
        let slot = self.slot(key);
        slot.is_some_and(|slot| {
            self.outbox.is_settled(
                slot,
                Tally {
                    counts,
                    late: Counts::ZERO,
                },
            )
        })
    }

    pub(crate) fn is_confirmed(&self, key: u32) -> bool {
        self.slot(key)
            .is_none_or(|slot| self.outbox.is_confirmed(slot))
    }

    pub(super) fn assign_key(&mut self, key: u32, name: Key, handover: Handover) {
        match &mut self.keys {
            Keys::Assigned(keys) => self.outbox.adopt(keys.insert(key, name), handover),
            Keys::All => debug_assert!(false, "a session of all keys is assigned none"),
        }
    }

    pub(super) fn release_key(&mut self, key: u32) -> Option<Handover> {
        let Keys::Assigned(keys) = &mut self.keys else {
            return None;
        };
        self.outbox.release(keys.remove(key)?)
    }

    /// Ends a key. Where all keys are reported its id belongs to another key from now on, which counts from
    /// zero.
    pub(super) fn finish_key(&mut self, key: u32) {
        match self.keys {
            Keys::All => self.outbox.adopt(KeyId(key), Handover::REUSED_NAME),
            Keys::Assigned(_) => _ = self.release_key(key),
        }
    }

    /// Returns the keys with these ids in reports; `None` for a key that is not assigned here anymore.
    pub(crate) fn keys_of(&self, ids: impl Iterator<Item = KeyId>) -> Vec<Option<u32>> {
        let slots = self.outbox.slots_of(ids).into_iter();
        slots.map(|slot| self.keys.of_slot(slot?)).collect()
    }

    fn slot(&self, key: u32) -> Option<KeyId> {
        match &self.keys {
            Keys::All => Some(KeyId(key)),
            Keys::Assigned(keys) => keys.slot(key),
        }
    }
}
