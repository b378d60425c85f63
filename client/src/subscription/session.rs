//! A conversation with one aggregator: what was sent on it and asked for, and what came.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::directive::{Board, Epoch, Sequence};
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::report::{Counts, Handover, InstanceId, Outbox, Report, Tally};
use plimsoll_core::quantity::MonoTime;

/// How often to report until the parent says otherwise.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// One stream after another to one endpoint.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) outbox: Outbox,
    pub(super) order: Sequence,
    /// By bucket: whether it was asked for on the present stream.
    pub(super) asked: Vec<bool>,
    pub(super) greeted: bool,
    /// The version of the kill generations, and the drill, that were told on the present stream.
    pub(super) kills_told: u64,
    pub(super) drill_told: Drill,
    pub(super) interval: Duration,
    /// When the parent last spoke, and how old the controller's word was then.
    pub(super) upstream: Option<(MonoTime, Duration)>,
    /// Who answered on the present stream.
    pub(super) parent: Option<InstanceId>,
    /// What it said on the present stream of every bucket that was asked for, whoever is listened to.
    pub(super) heard: Board,
    /// When evidence was last told here.
    pub(super) testified: Option<MonoTime>,
    slots: Slots,
}

/// Those keys whose counts go here, by the ids they have here.
#[derive(Debug, Default)]
struct Slots {
    keys: Vec<Key>,
    /// The same by their ids in the table; `None` once it has left.
    own: Vec<Option<u32>>,
    by_own: HashMap<u32, KeyId>,
    /// Places of those that left.
    free: Vec<KeyId>,
}

impl Strand {
    /// A conversation in which nothing older than `epoch` is believed.
    pub(super) fn new(epoch: Option<Epoch>) -> Self {
        let mut order = Sequence::default();
        // Only a jump is refused, and what is held is none.
        let _ = order.accept(epoch, 1);
        order.open();
        Self {
            outbox: Outbox::default(),
            order,
            asked: Vec::new(),
            greeted: false,
            kills_told: 0,
            drill_told: Drill::default(),
            interval: REPORT_INTERVAL,
            upstream: None,
            parent: None,
            heard: Board::default(),
            testified: None,
            slots: Slots::default(),
        }
    }

    /// A new stream begins.
    pub(super) fn open(&mut self) {
        self.outbox.open();
        self.order.open();
        self.asked.clear();
        self.greeted = false;
        (self.kills_told, self.drill_told) = (0, Drill::default());
        self.parent = None;
        self.heard = Board::default();
    }

    /// The parent has said who it is.
    pub(super) fn answered(&mut self, parent: InstanceId) {
        self.outbox.on_answer(parent);
        self.parent = Some(parent);
    }

    /// The buckets to ask for now, of those that are wanted: each once on a stream.
    pub(super) fn ask(&mut self, buckets: usize, mut is_wanted: impl FnMut(usize) -> bool) -> Vec<usize> {
        self.asked.resize(buckets, false);
        let asked = self.asked.iter_mut().enumerate();
        let new = asked.filter(|(bucket, asked)| !**asked && is_wanted(*bucket));
        new.map(|(bucket, asked)| {
            *asked = true;
            bucket
        })
        .collect()
    }

    /// How old the controller's word is by now.
    pub(super) fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        self.upstream.map(|(at, age)| age + now.since(at))
    }

    /// A key's counts go here from now on, and what was said of them before.
    pub(super) fn adopt(&mut self, own: u32, key: Key, handover: Handover) {
        let slots = &mut self.slots;
        let id = slots.free.pop().unwrap_or_else(|| {
            slots.keys.push(key.clone());
            slots.own.push(None);
            KeyId(u32::try_from(slots.keys.len() - 1).unwrap_or(u32::MAX))
        });
        let (Some(name), Some(place)) = (slots.keys.get_mut(id.index()), slots.own.get_mut(id.index()))
        else {
            return;
        };
        (*name, *place) = (key, Some(own));
        slots.by_own.insert(own, id);
        self.outbox.adopt(id, handover);
    }

    /// A key's counts go elsewhere from now on.
    pub(super) fn release(&mut self, own: u32) -> Option<Handover> {
        let id = self.slots.by_own.remove(&own)?;
        *self.slots.own.get_mut(id.index())? = None;
        self.slots.free.push(id);
        self.outbox.release(id)
    }

    /// Whether everything that was sent here of a key is confirmed.
    pub(super) fn is_settled(&self, own: u32) -> bool {
        self.slots.by_own.get(&own).is_none_or(|id| self.outbox.is_confirmed(*id))
    }

    /// Whether these counts of a key were sent and are confirmed, where all keys are here.
    pub(super) fn has_reported(&self, own: u32, counts: Counts) -> bool {
        self.outbox.is_settled(KeyId(own), Tally { counts, late: Counts::ZERO })
    }

    /// The same, where only some are.
    pub(super) fn has_reported_here(&self, own: u32, counts: Counts) -> bool {
        let id = self.slots.by_own.get(&own);
        id.is_some_and(|id| self.outbox.is_settled(*id, Tally { counts, late: Counts::ZERO }))
    }

    /// Fills a report with what the keys that are here have counted, as far as `counts_of` tells, and notes what is new
    /// of each.
    pub(super) fn fill(
        &mut self,
        report: &mut Report,
        counts_of: impl Fn(u32) -> Counts,
        mut note: impl FnMut(u32, Counts),
    ) {
        let own = |id: KeyId| self.slots.own.get(id.index()).copied().flatten();
        let tally_of = |id| {
            let counts = own(id).map_or(Counts::ZERO, &counts_of);
            Tally { counts, late: Counts::ZERO }
        };
        let note = |id, new| {
            if let Some(own) = own(id) {
                note(own, new);
            }
        };
        self.outbox.fill_noting(report, &self.slots.keys, tally_of, note);
    }
}
