//! A parent's side of the books: what it has counted of one child, and where to count on from.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Counts, InstanceId, KeyDefinition, Report, Tally};
use crate::bucket::{Key, KeyId};
use crate::time::{MonoTime, Pace};

/// What a parent remembers of one instance, across its streams.
///
/// So that nothing is counted twice and as little as possible not at all, whoever crashes: a parent that remembers a
/// key of this instance at or above its `base` counts on from what it remembers. Any other begins at `base` (that
/// much was counted in earlier lives) and takes `value - sent`; `sent - base` is given up as unconfirmed, for it may
/// or may not have been counted. Hence counted <= decided <= counted + unconfirmed.
///
/// A parent remembers only as long as the child reported counts to nobody else: once another parent was in between,
/// what is remembered here no longer tells what was lost from what the other one has counted.
#[derive(Debug)]
pub struct Books {
    instance: InstanceId,
    /// Who keeps them.
    parent: InstanceId,
    keys_max: usize,
    pace: Option<Pace>,
    /// A span was measured.
    timed: bool,
    seq: u64,
    entries: Vec<KeyBooks>,
    /// What earlier streams of the instance left here.
    remembered: HashMap<Key, Tally>,
}

/// The books of one key on the present stream.
#[derive(Debug)]
struct KeyBooks {
    key: Key,
    own: Option<KeyId>,
    start: Start,
    tally: Tally,
}

/// Where counting begins when the key is first heard of on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Known: the difference to what is remembered says how much is new.
    CountOn,
    /// Counted elsewhere up to somewhere between these two.
    TakeOver { base: Counts, sent: Counts },
}

/// Where entries of a report come from, which decides whether they speak about the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pedigree {
    /// The difference between two reports heard here.
    Observed,
    /// Taken over from another parent's books: tells how much, not when.
    TakenOver,
}

/// What one report added to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The parent's own id of the key; `None` if the parent's table was full.
    pub own: Option<KeyId>,
    /// What is new.
    pub delta: Tally,
    /// How the difference was found.
    pub pedigree: Pedigree,
}

/// What one report added to the books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// The time the report covers, by the child's clock; `None` for the first report with a time of an instance.
    pub span: Option<Duration>,
    /// The span is the first one of the instance.
    pub first_span: bool,
    /// What is new, for each key that changed.
    pub entries: Vec<Entry>,
    /// Requests given up because nobody can tell whether they were counted before.
    pub unconfirmed: u64,
    /// Keys that found no room in the parent's table.
    pub homeless: usize,
}

/// A report that cannot have come from a sound peer; its stream is closed and nothing of it counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenReport {
    /// A report came again, or after a later one.
    #[error("report {got} came after report {held}")]
    Late {
        /// The last number entered.
        held: u64,
        /// The number that came.
        got: u64,
    },
    /// Key ids are given out densely and once.
    #[error("key id {0} is defined out of turn")]
    Definition(u32),
    /// Counts for an id without a definition.
    #[error("key id {0} has counts but no definition")]
    Undefined(u32),
    /// More was refused than offered.
    #[error("the counts of {0:?} do not add up: more refused than offered, or more late than counted")]
    Inconsistent(Key),
    /// A cumulative count became smaller.
    #[error("the cumulative counts of {0:?} went back")]
    WentBack(Key),
    /// More keys than a child may have here.
    #[error("a child may define {0} keys here, and not one more")]
    TooManyKeys(usize),
    /// Counts without a time say nothing.
    #[error("a report without a time must not carry counts")]
    Timeless,
}

impl Books {
    /// Empty books for an instance, kept by `parent`, for at most `keys_max` keys.
    #[must_use]
    pub fn new(instance: InstanceId, parent: InstanceId, keys_max: usize) -> Self {
        let (entries, remembered) = (Vec::new(), HashMap::new());
        Self { instance, parent, keys_max, pace: None, timed: false, seq: 0, entries, remembered }
    }

    /// Whose books these are.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Who keeps them.
    #[must_use]
    pub const fn parent(&self) -> InstanceId {
        self.parent
    }

    /// The last report entered on this stream; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the child's clock was found unfit (see [`Pace`]).
    #[must_use]
    pub fn clock_distrusted(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::distrusted)
    }

    /// A new stream of the same instance begins: ids start over, memory stays.
    pub fn open(&mut self) {
        self.seq = 0;
        if let Some(pace) = &mut self.pace {
            pace.open();
        }
        if self.remembered.len() + self.entries.len() > self.keys_max {
            self.remembered.clear();
        }
        for entry in self.entries.drain(..) {
            if entry.start == Start::CountOn {
                self.remembered.insert(entry.key, entry.tally);
            }
        }
    }

    /// Enters one report. `intern` gives the parent's own id for a key, or `None` if there is no room. Linear in
    /// what the report carries.
    ///
    /// # Errors
    /// When the report cannot have come from a sound peer. The books are then as before, but the stream is lost.
    pub fn enter(
        &mut self,
        now: MonoTime,
        report: &Report,
        intern: impl FnMut(&Key) -> Option<KeyId>,
    ) -> Result<Entered, BrokenReport> {
        self.check(report)?;
        let mut entered = Entered::default();
        if report.counted_by.is_some_and(|parent| parent != self.parent) {
            self.remembered.clear();
        }
        self.seq = report.seq;
        self.define(&report.definitions, intern, &mut entered);
        let Some(time) = report.time else { return Ok(entered) };
        entered.first_span = self.pace.is_some() && !std::mem::replace(&mut self.timed, self.pace.is_some());
        entered.span = match &mut self.pace {
            Some(pace) => Some(pace.elapsed(time, now)),
            first @ None => {
                *first = Some(Pace::new(time, now));
                None
            }
        };
        for (id, tally) in &report.tallies {
            let Some(entry) = self.entries.get_mut(id.index()) else { continue };
            let (from, pedigree) = match entry.start {
                Start::CountOn => (entry.tally, Pedigree::Observed),
                Start::TakeOver { base, sent } => {
                    entered.unconfirmed += sent.since(base).offered;
                    (Tally { counts: sent, late: tally.late }, Pedigree::TakenOver)
                }
            };
            entry.start = Start::CountOn;
            // A greeting that a later one overtook says less than is known; the difference was counted before.
            entry.tally = tally.merge(from);
            let delta = tally.since(from);
            if delta != Tally::ZERO {
                entered.entries.push(Entry { own: entry.own, delta, pedigree });
            }
        }
        Ok(entered)
    }

    fn define(
        &mut self,
        definitions: &BTreeMap<KeyId, KeyDefinition>,
        mut intern: impl FnMut(&Key) -> Option<KeyId>,
        entered: &mut Entered,
    ) {
        for definition in definitions.values() {
            let own = intern(&definition.key);
            entered.homeless += usize::from(own.is_none());
            let remembered = self.remembered.remove(&definition.key);
            let (start, tally) = match remembered {
                Some(tally) if tally.counts.covers(definition.base) => (Start::CountOn, tally),
                None if definition.sent == Counts::ZERO => (Start::CountOn, Tally::ZERO),
                _ => {
                    let (base, sent) = (definition.base, definition.sent);
                    (Start::TakeOver { base, sent }, Tally { counts: sent, late: Counts::ZERO })
                }
            };
            self.entries.push(KeyBooks { key: definition.key.clone(), own, start, tally });
        }
    }

    /// Everything that could be wrong with a report, before anything of it is entered.
    fn check(&self, report: &Report) -> Result<(), BrokenReport> {
        if report.seq <= self.seq {
            return Err(BrokenReport::Late { held: self.seq, got: report.seq });
        }
        if report.time.is_none() && !report.tallies.is_empty() {
            return Err(BrokenReport::Timeless);
        }
        if self.entries.len() + report.definitions.len() > self.keys_max {
            return Err(BrokenReport::TooManyKeys(self.keys_max));
        }
        for (due, (id, definition)) in (self.entries.len()..).zip(&report.definitions) {
            if id.index() != due {
                return Err(BrokenReport::Definition(id.0));
            }
            if !definition.sent.covers(definition.base) {
                return Err(BrokenReport::WentBack(definition.key.clone()));
            }
        }
        for (id, tally) in &report.tallies {
            let (key, floor) = match self.entries.get(id.index()) {
                Some(entry) => (&entry.key, entry.tally),
                None => match report.definitions.get(id) {
                    Some(new) => (&new.key, Tally { counts: new.sent, late: Counts::ZERO }),
                    None => return Err(BrokenReport::Undefined(id.0)),
                },
            };
            if !tally.counts.is_consistent() || !tally.counts.covers(tally.late) {
                return Err(BrokenReport::Inconsistent(key.clone()));
            }
            if !tally.covers(floor) {
                return Err(BrokenReport::WentBack(key.clone()));
            }
        }
        Ok(())
    }
}
