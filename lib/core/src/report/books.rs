//! The parent's side of the books: the counts of one child, and the point where counting continues
//! on a new stream.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::allowance::{Allowance, CLIENTS_MAX, DECISIONS_PER_S_MAX, Taken};
use super::ingest::Noted;
use super::{
    Counts, Entered, InstanceId, InvalidReport, KeyDefinition, Ledger, New, Origin, Report, Tally,
};
use crate::names::{Key, KeyId, TablePlace};
use crate::quantity::{MonoTime, Pace};

/// The counts that a parent remembers of one child instance, across its streams.
///
/// Nothing is counted twice, and as little as possible is lost, regardless of which process
/// crashes. A parent that remembers a key of this instance at or above its `base` continues from
/// its own count. Any other parent begins at `base`, which was counted in earlier lives, and adds
/// `value - sent`; it gives up `sent - base` as unconfirmed, because those requests may or may not
/// have been counted. Hence counted <= decided <= counted + unconfirmed.
///
/// A parent remembers a key only as long as the child reported its counts to no other parent. After
/// that, its memory cannot distinguish lost counts from counts of the other parent.
#[derive(Debug)]
pub struct Books {
    parent: InstanceId,
    keys_max: usize,
    pace: Option<Pace>,
    /// True once a span was measured.
    timed: bool,
    allowance: Allowance,
    seq: u64,
    /// The report with entered parts and without its last one yet.
    unfinished: Option<Unfinished>,
    /// The part of each key that every report touches, by the child's id.
    lines: Vec<Line>,
    /// The late parts; empty until there is one.
    late: Vec<Counts>,
    keys: Vec<Defined>,
    /// The `base` and `sent` of keys without a usable memory here, until their first counts arrive. Another parent
    /// counted up to a point between the two.
    taken_over: BTreeMap<KeyId, (Counts, Counts)>,
    definitions: u64,
    /// The counts that earlier streams of the instance left here, until the first whole report with counts, which
    /// defines all keys that the child still has.
    remembered: HashMap<Key, Tally>,
}

/// What the parts of one report have in common.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    seq: u64,
    span: Option<Duration>,
    first_span: bool,
    late: Duration,
    decisions_max: u64,
}

/// The books of one key on the present stream, kept small because a report touches thousands.
#[derive(Clone, Copy, Debug)]
struct Line {
    counts: Counts,
    /// [`NOWHERE`] if the key has no place in the parent's table.
    place: TablePlace,
}

#[derive(Debug)]
struct Defined {
    key: Key,
    /// The number of its definition on the stream; of two lines with one key the later one counts.
    order: u64,
}

/// The place of a line without a place in the parent's table. No table assigns this id to a key.
const NOWHERE: TablePlace = TablePlace {
    id: KeyId(u32::MAX),
    generation: 0,
};

impl Line {
    fn place(&self) -> Option<TablePlace> {
        Some(self.place).filter(|place| *place != NOWHERE)
    }
}

impl Books {
    /// Creates empty books, kept by `parent`, for at most `keys_max` keys.
    pub fn new(parent: InstanceId, keys_max: usize) -> Self {
        Self {
            parent,
            keys_max,
            pace: None,
            timed: false,
            allowance: Allowance::new(DECISIONS_PER_S_MAX, CLIENTS_MAX),
            seq: 0,
            unfinished: None,
            lines: Vec::new(),
            late: Vec::new(),
            keys: Vec::new(),
            taken_over: BTreeMap::new(),
            definitions: 0,
            remembered: HashMap::new(),
        }
    }

    /// Sets bounds on the child's reports: the requests/s that the child, or each client behind it,
    /// is believed to decide, and the number of clients that are believed to be behind it.
    #[must_use]
    pub fn with_bounds(self, per_s_max: u64, clients_max: u32) -> Self {
        Self {
            allowance: Allowance::new(per_s_max, clients_max),
            ..self
        }
    }

    /// Sets aside a share of the parent's range for this instance: no more is counted of it. Returns what is left
    /// of the share before.
    pub(crate) const fn renew_share(&mut self, share: u64) -> u64 {
        self.allowance.renew_share(share)
    }

    /// The rest of the share.
    pub(crate) const fn share_left(&self) -> u64 {
        self.allowance.share_left()
    }

    /// The instance of the parent.
    pub const fn parent(&self) -> InstanceId {
        self.parent
    }

    /// The last report entered on this stream; 0 before the first.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns true if the child's clock failed the comparison (see [`Pace`]).
    pub fn clock_distrusted(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::distrusted)
    }

    /// The keys held: of the present stream, and remembered of earlier ones.
    pub fn keys_held(&self) -> usize {
        self.lines.len() + self.remembered.len()
    }

    /// The keys that a report adds.
    pub fn new_keys(&self, report: &Report) -> usize {
        report
            .definitions
            .range(KeyId(u32::try_from(self.lines.len()).unwrap_or(u32::MAX))..)
            .count()
    }

    /// Begins a new stream of the same instance: ids start over. The counts of the last stream are remembered, and those
    /// of earlier ones that it did not come to define, unless these are too many.
    pub fn open(&mut self) {
        self.seq = 0;
        self.unfinished = None;
        self.definitions = 0;
        if let Some(pace) = &mut self.pace {
            pace.open();
        }
        if self.keys_held() > self.keys_max {
            self.remembered.clear();
        }
        let taken_over = std::mem::take(&mut self.taken_over);
        let late = std::mem::take(&mut self.late);
        let mut left: Vec<(KeyId, Defined)> = (0..).map(KeyId).zip(self.keys.drain(..)).collect();
        left.sort_unstable_by_key(|(_, defined)| defined.order);
        for (id, defined) in left {
            if taken_over.contains_key(&id) {
                self.remembered.remove(&defined.key);
            } else {
                let late = late.get(id.index()).copied().unwrap_or_default();
                self.remembered.insert(
                    defined.key,
                    Tally {
                        counts: self.lines[id.index()].counts,
                        late,
                    },
                );
            }
        }
        self.lines.clear();
    }

    /// Enters one report and returns what it added. `intern` returns the parent's own id for a key, or `None`
    /// if there is no room. Linear in the size of the report.
    ///
    /// # Errors
    /// If the report violates the protocol. The books are unchanged then, but the stream must be closed.
    pub fn enter(
        &mut self,
        now: MonoTime,
        report: &Report,
        intern: impl FnMut(&Key) -> Option<KeyId>,
    ) -> Result<Entered, InvalidReport> {
        self.check(report)?;
        let mut noted = Noted {
            intern,
            entries: Vec::new(),
        };
        let entered = self.enter_into(now, report, u64::MAX, &mut noted);
        Ok(Entered {
            entries: noted.entries,
            ..entered
        })
    }

    /// Enters one report, or one part of it, which the caller has [checked](Self::check), into the
    /// parent's own tables. Linear in its size. At most `late_room` of the requests with unverified
    /// times are counted.
    pub fn enter_into(
        &mut self,
        now: MonoTime,
        report: &Report,
        late_room: u64,
        ledger: &mut impl Ledger,
    ) -> Entered {
        debug_assert!(
            self.check(report).is_ok(),
            "a parent checks a report before it takes any of it"
        );
        let mut entered = self.begin(now, report);
        self.allowance.set_late_room(late_room);
        let mut taken = Taken::default();
        for (id, definition) in &report.definitions {
            self.define(*id, definition, ledger, &mut entered);
        }
        if report.time.is_none() {
            return entered;
        }
        if !report.more && !self.remembered.is_empty() {
            self.remembered = HashMap::new();
        }
        ledger.begin(&entered);
        if report.tallies.has_late() && self.late.len() < self.lines.len() {
            self.late.resize(self.lines.len(), Counts::ZERO);
        }
        for (id, tally) in report.tallies.iter() {
            let Some((line, defined)) = self
                .lines
                .get_mut(id.index())
                .zip(self.keys.get(id.index()))
            else {
                continue;
            };
            let mut from = Tally {
                counts: line.counts,
                late: Counts::ZERO,
            };
            if let Some(late) = self.late.get(id.index()) {
                from.late = *late;
            }
            let mut origin = Origin::Observed;
            if !self.taken_over.is_empty()
                && let Some((base, sent)) = self.taken_over.remove(&id)
            {
                entered.unconfirmed = entered.unconfirmed.saturating_add(sent.since(base).asked());
                (from, origin) = (
                    Tally {
                        counts: sent,
                        late: tally.late,
                    },
                    Origin::TakenOver,
                );
            }
            // The late counts of a remembered key may be above those of its first report: that part was counted
            // before.
            let mut delta = tally.since(from);
            if !delta.is_consistent() {
                // Refusals of requests that an earlier report offered. In a table where the key has another
                // place by now they could exceed what was offered, so they wait for new requests.
                delta = delta.consistent_part();
            }
            line.counts = from.counts.plus(delta.counts);
            if let Some(late) = self.late.get_mut(id.index()) {
                *late = from.late.plus(delta.late);
            }
            if delta == Tally::ZERO {
                continue;
            }
            let mut new = New { delta, origin };
            self.allowance.take(&mut new, &mut taken);
            entered.counted = entered.counted.saturating_add(new.delta.counts.asked());
            if new.delta != Tally::ZERO {
                let place = line.place();
                let went = ledger.add(place, id, &defined.key, new);
                if went != place {
                    line.place = went.unwrap_or(NOWHERE);
                }
            }
        }
        let unconfirmed = entered.unconfirmed.min(self.allowance.unconfirmed_max());
        let cut = taken.cut.saturating_add(entered.unconfirmed - unconfirmed);
        Entered {
            unconfirmed,
            cut,
            counted_late: taken.late,
            ..entered
        }
    }

    /// Begins a report, or continues it with a further part.
    fn begin(&mut self, now: MonoTime, report: &Report) -> Entered {
        let begun = self.unfinished.take().unwrap_or_else(|| {
            let mut begun = Unfinished {
                seq: report.seq,
                span: None,
                first_span: false,
                late: Duration::ZERO,
                decisions_max: 0,
            };
            let Some(time) = report.time else {
                return begun;
            };
            begun.first_span = self.pace.is_some() && !std::mem::replace(&mut self.timed, true);
            begun.span = match &mut self.pace {
                Some(pace) => {
                    let span = pace.elapsed(time, now);
                    begun.late = pace.late();
                    Some(span)
                }
                first @ None => {
                    *first = Some(Pace::new(time, now));
                    None
                }
            };
            begun.decisions_max = self
                .allowance
                .begin(now, begun.span, report.clients.connected);
            begun
        });
        if report.more {
            self.unfinished = Some(begun);
        } else {
            self.seq = report.seq;
        }
        let Unfinished {
            span,
            first_span,
            late,
            decisions_max,
            ..
        } = begun;
        Entered {
            span,
            first_span,
            late,
            decisions_max,
            ..Entered::default()
        }
    }

    /// Defines a key on the stream, and decides where its counts continue.
    fn define(
        &mut self,
        id: KeyId,
        definition: &KeyDefinition,
        ledger: &mut impl Ledger,
        entered: &mut Entered,
    ) {
        let place = ledger.place(id, &definition.key);
        entered.rejected_keys += usize::from(place.is_none());
        // A memory above what the child ever sent is of another process that used its instance.
        let remembered = self
            .remembered
            .remove(&definition.key)
            .filter(|tally| definition.continues && definition.sent.covers(tally.counts));
        let (tally, taken_over) = match remembered {
            Some(tally) if tally.counts.covers(definition.base) => (tally, false),
            None if definition.sent == Counts::ZERO => (Tally::ZERO, false),
            _ => (
                Tally {
                    counts: definition.sent,
                    late: Counts::ZERO,
                },
                true,
            ),
        };
        self.definitions += 1;
        let line = Line {
            counts: tally.counts,
            place: place.unwrap_or(NOWHERE),
        };
        let key = place.map_or_else(
            || definition.key.clone(),
            |place| ledger.interned(place, &definition.key),
        );
        debug_assert_eq!(key, definition.key);
        let defined = Defined {
            key,
            order: self.definitions,
        };
        match self
            .lines
            .get_mut(id.index())
            .zip(self.keys.get_mut(id.index()))
        {
            Some((held, key)) => (*held, *key) = (line, defined),
            None => {
                self.lines.push(line);
                self.keys.push(defined);
            }
        }
        if tally.late != Counts::ZERO || !self.late.is_empty() {
            self.late.resize(self.lines.len(), Counts::ZERO);
            self.late[id.index()] = tally.late;
        }
        if taken_over {
            self.taken_over
                .insert(id, (definition.base, definition.sent));
        } else {
            self.taken_over.remove(&id);
        }
    }

    /// Checks the whole report, or the whole part, before any of it is entered.
    ///
    /// # Errors
    /// If the report violates the protocol; the stream must be closed.
    pub fn check(&self, report: &Report) -> Result<(), InvalidReport> {
        let is_next = match self.unfinished {
            Some(unfinished) => report.seq == unfinished.seq,
            None => report.seq > self.seq,
        };
        if !is_next {
            return Err(InvalidReport::Late {
                held: self.seq,
                got: report.seq,
            });
        }
        if report.time.is_none() && !report.tallies.is_empty() {
            return Err(InvalidReport::Timeless);
        }
        let mut defined = self.lines.len();
        for (id, definition) in &report.definitions {
            if id.index() > defined {
                return Err(InvalidReport::Definition(id.0));
            }
            defined = defined.max(id.index() + 1);
            if defined > self.keys_max {
                return Err(InvalidReport::TooManyKeys(self.keys_max));
            }
            if !definition.sent.covers(definition.base) {
                return Err(InvalidReport::WentBack(definition.key.clone()));
            }
        }
        for (id, tally) in report.tallies.iter() {
            let (key, floor) = self
                .floor(report, id)
                .ok_or(InvalidReport::Undefined(id.0))?;
            if !tally.is_consistent() {
                return Err(InvalidReport::Inconsistent(key.clone()));
            }
            if !tally.covers(floor) {
                return Err(InvalidReport::WentBack(key.clone()));
            }
        }
        Ok(())
    }

    /// The key of an id, and the counts below which its total must not fall.
    #[inline]
    fn floor<'a>(&'a self, report: &'a Report, id: KeyId) -> Option<(&'a Key, Tally)> {
        if !report.definitions.is_empty()
            && let Some(new) = report.definitions.get(&id)
        {
            return Some((
                &new.key,
                Tally {
                    counts: new.sent,
                    late: Counts::ZERO,
                },
            ));
        }
        let (line, defined) = self.lines.get(id.index()).zip(self.keys.get(id.index()))?;
        let late = self.late.get(id.index()).copied().unwrap_or_default();
        Some((
            &defined.key,
            Tally {
                counts: line.counts,
                late,
            },
        ))
    }
}
