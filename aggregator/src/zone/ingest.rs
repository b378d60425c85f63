//! The entries of one report on their way into the zone's tables.

use std::time::Duration;

use plimsoll_core::directive::{Board, Posted};
use plimsoll_core::exchange::{StreamId, StreamRejected};
use plimsoll_core::law::tail::Standing;
use plimsoll_core::names::{Bucket, Key, KeyId, TablePlace};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Entered, InstanceId, Ledger, New, Origin, Outbox, Report};

use super::Zone;
use super::admissions::Admissions;
use super::locate::Locator;
use crate::downstream::{SentStandings, Traffic};
use crate::fast_loop::FastLoop;
use crate::key_counts::{Counted, KeyCounts, Source};
use crate::upstream::Catalogue;

/// The entries of a report, buffered until all have been checked and placed. Each table is then updated in
/// one short loop, so that the processor waits for the memory of many entries at a time.
#[derive(Debug, Default)]
pub(super) struct EntryBuffer {
    entries: Vec<BufferedEntry>,
    /// The late counts of some entries, by the index of the entry.
    late: Vec<(usize, Counts)>,
}

#[derive(Clone, Copy, Debug)]
struct BufferedEntry {
    /// The key's id here.
    id: KeyId,
    /// The key's id at the child.
    of_child: KeyId,
    /// [`Counted::NOTHING`] until the entry is moved into the key table.
    counted: Counted,
    counts: Counts,
}

/// The ledger of one report: the tables that its entries go into.
struct Ingest<'a> {
    buffer: &'a mut EntryBuffer,
    now: MonoTime,
    keys: &'a mut KeyCounts,
    fast_loop: &'a mut FastLoop,
    admissions: &'a mut Admissions,
    board: &'a Board,
    /// The bucket looked up last, with its directives.
    latest: Option<(Bucket, Option<&'a Posted>)>,
    catalogue: &'a mut Catalogue,
    outbox: &'a mut Outbox,
    /// Minimum span of a report that shows nothing about the present rate.
    late_from: Duration,
    is_all_late: bool,
    /// The traffic of the aggregator that sent the report; `None` for a client.
    child_traffic: Option<&'a mut Traffic>,
    /// The standings that the client that sent the report holds; `None` for an aggregator.
    standings: Option<&'a mut SentStandings>,
    /// The time that the report covers, if it shows something about the present rate.
    span: Option<Duration>,
    /// The report has no further part.
    is_last: bool,
}

impl Zone {
    /// Adds the counts and the evidence of a child's report, or of a part of one.
    pub(super) fn enter(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        instance: InstanceId,
        report: &Report,
    ) -> Result<(), StreamRejected> {
        let mut aggregator = self.downstream.aggregators.by_instance.get_mut(&instance);
        let is_aggregator = aggregator.is_some();
        let mut ingest = Ingest {
            buffer: &mut self.buffer,
            now,
            keys: &mut self.keys,
            fast_loop: &mut self.fast_loop,
            admissions: &mut self.admissions,
            board: &self.board,
            latest: None,
            catalogue: &mut self.upstream.catalogue,
            outbox: &mut self.upstream.outbox,
            late_from: self.schedule.late_from(),
            is_all_late: true,
            child_traffic: aggregator
                .as_mut()
                .map(|aggregator| &mut aggregator.traffic),
            standings: (!is_aggregator).then(|| self.downstream.standings.of(instance)),
            span: None,
            is_last: !report.more,
        };
        let entered = self
            .downstream
            .sessions
            .enter(now, stream, report, &mut ingest);
        let entered = entered.ok_or(StreamRejected::Unknown)?;
        // Evidence of a late report may be of a stage that is over.
        let has_evidence = !ingest.is_all_late;
        self.counters.late += ingest.finish();
        if let Some(aggregator) = aggregator.filter(|_| !report.more) {
            aggregator.on_report(report);
        }
        for (cohort, outcomes) in report.evidence.iter() {
            let bucket = &cohort.bucket;
            let mode = self
                .board
                .get(bucket)
                .map(|posted| self.kills.mode(bucket, posted.terms()));
            let child = self.downstream.sessions.get(instance);
            let counts = has_evidence
                && outcomes.is_plausible(entered.decisions_max)
                && child.is_some_and(|child| child.is_subscribed(bucket))
                // Without directives there is no rollout to judge.
                && mode.is_some_and(|mode| self.modes.accepts(now, bucket, mode, cohort.mode));
            if counts {
                // A client is one instance, regardless of its report.
                let instances = if is_aggregator { outcomes.instances } else { 1 };
                self.upstream
                    .evidence
                    .add(instance, instances, cohort, outcomes);
            } else {
                self.upstream.evidence.leave_out(outcomes);
            }
        }
        self.counters.unconfirmed = self
            .counters
            .unconfirmed
            .saturating_add(entered.unconfirmed);
        self.counters.cut = self.counters.cut.saturating_add(entered.cut);
        self.counters.rejected += entered.rejected_keys as u64;
        Ok(())
    }
}

impl Ingest<'_> {
    fn find(&mut self, key: &Key, came: u64) -> Option<TablePlace> {
        if let Some(place) = self.keys.known(key) {
            return Some(place);
        }
        let (board, latest) = (self.board, &mut self.latest);
        if latest
            .as_ref()
            .is_none_or(|(bucket, _)| *bucket != key.bucket)
        {
            *latest = Some((key.bucket.clone(), board.get(&key.bucket)));
        }
        let mut locator = Locator {
            now: self.now,
            keys: self.keys,
            fast_loop: self.fast_loop,
            posted: latest.as_ref().and_then(|(_, posted)| *posted),
            catalogue: self.catalogue,
            outbox: self.outbox,
        };
        locator.find(key, came)
    }

    /// Moves the buffered entries into the tables. Returns the number of requests that arrived
    /// late.
    fn finish(self) -> u64 {
        let EntryBuffer { entries, late } = self.buffer;
        for entry in &mut *entries {
            entry.counted = self.keys.add(entry.id, entry.counts);
        }
        let mut came_late = 0;
        for (entry, late) in late.drain(..) {
            came_late += late.asked();
            debug_assert!(entry < entries.len(), "a late part without an entry");
            if let Some(entry) = entries.get_mut(entry) {
                self.keys.add_late(entry.id, late);
                entry.counts = entry.counts.since(late);
            }
        }
        self.admissions.add(
            self.keys,
            entries.iter().map(|entry| (entry.id, entry.counts)),
        );
        match self.child_traffic {
            Some(traffic) => {
                // The windows of the fast loop do not include this traffic: each child has its own
                // fast loop, and a few large reports would make the ratios of all others jump
                // between tenths of seconds.
                for entry in entries.iter().filter(|entry| entry.counts.offered > 0) {
                    traffic.add(entry.counted.line.index(), entry.counts.offered as f64);
                }
                if self.is_last {
                    traffic.settle(self.span);
                }
            }
            None => {
                for entry in &*entries {
                    let held = self
                        .standings
                        .as_ref()
                        .and_then(|sent| sent.held(entry.of_child));
                    self.fast_loop
                        .add(self.now, entry.id, entry.counted, entry.counts, held);
                }
                self.fast_loop.end();
            }
        }
        if let Some(standings) = self.standings {
            let tails = &self.fast_loop.tails;
            let has_plans = self.catalogue.hash.is_some() || !standings.classes.is_empty();
            for entry in &*entries {
                let (id, counted) = (entry.id, entry.counted);
                if has_plans && !self.keys.brings_plan(id) {
                    let line = self.keys.lines.keys()[counted.line.index()].tenant.as_str();
                    // A listed tenant is of a class for its exact quotas.
                    let class = match counted.source {
                        Source::Listed => self.catalogue.class_of(line),
                        Source::Name | Source::Unnamed => Some(line),
                    };
                    standings.classes.note(entry.of_child, class);
                }
                let standing = match counted.source {
                    Source::Listed => continue,
                    Source::Name => tails.standing(id),
                    // A name that was forgotten here counts as unknown.
                    Source::Unnamed => Standing::default(),
                };
                standings.note(entry.of_child, standing, tails.is_cut(counted.line));
            }
        }
        entries.clear();
        came_late
    }
}

impl Ledger for Ingest<'_> {
    fn begin(&mut self, report: &Entered) {
        let span = report.span;
        self.is_all_late = span.is_none_or(|span| span >= self.late_from);
        self.span = span.filter(|_| !self.is_all_late);
        if self.child_traffic.is_none() {
            self.fast_loop.begin(self.now, report);
        }
    }

    fn place(&mut self, id: KeyId, key: &Key) -> Option<TablePlace> {
        if let Some(standings) = &mut self.standings {
            standings.define(id);
        }
        self.find(key, 0)
    }

    fn interned(&self, place: TablePlace, key: &Key) -> Key {
        self.keys.interned(place.id, key)
    }

    #[inline]
    fn add(
        &mut self,
        place: Option<TablePlace>,
        id: KeyId,
        key: &Key,
        new: New,
    ) -> Option<TablePlace> {
        let place = match place {
            Some(place) if self.keys.is_current(place) => place,
            _ => self.find(key, new.delta.counts.asked())?,
        };
        let late = if self.is_all_late || new.origin == Origin::TakenOver {
            new.delta.counts
        } else {
            new.delta.late
        };
        if late != Counts::ZERO {
            self.buffer.late.push((self.buffer.entries.len(), late));
        }
        self.buffer.entries.push(BufferedEntry {
            id: place.id,
            of_child: id,
            counted: Counted::NOTHING,
            counts: new.delta.counts,
        });
        Some(place)
    }
}
