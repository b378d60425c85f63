//! The state machine of one aggregator: merges the reports of its children, rolls them up to its parent, and
//! passes directives down. Pure: it takes time and messages as arguments and returns messages.

mod admissions;
pub(crate) mod bounds;
mod child;
mod ingest;
mod kill;
mod listing;
mod locate;
mod modes;
mod parent;
mod room;
#[cfg(test)]
mod tests;

pub use bounds::{Bounds, Counters};

use std::collections::BTreeMap;

use plimsoll_core::directive::Board;
use plimsoll_core::exchange::Child;
use plimsoll_core::exchange::sessions::{Head, Sessions};
use plimsoll_core::kill::KillRelay;
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Counts, Identity};

use self::modes::Modes;
use crate::downstream::{Downstream, is_foreign};
use crate::fast_loop::{Context, FastLoop};
use crate::key_counts::KeyCounts;
use crate::schedule::Schedule;
use crate::upstream::Upstream;
use crate::warmup::Warmup;

use admissions::Admissions;
use ingest::EntryBuffer;
use room::Room;

/// The state of one aggregator. Each field holds one concern; the zone sequences them.
#[derive(Debug)]
pub struct Zone {
    pub(crate) identity: Identity,
    parameters: Parameters,
    /// The directives of the parent.
    pub(crate) board: Board,
    pub(crate) keys: KeyCounts,
    /// Empty except while a report is merged.
    buffer: EntryBuffer,
    fast_loop: FastLoop,
    pub(crate) schedule: Schedule,
    pub(crate) warmup: Warmup,
    pub(crate) downstream: Downstream,
    pub(crate) upstream: Upstream,
    pub(crate) room: Room,
    pub(crate) counters: Counters,
    admissions: Admissions,
    pub(crate) kills: KillRelay,
    modes: Modes,
}

impl Zone {
    /// A zone without children, directives or counts.
    pub fn new(identity: Identity, bounds: Bounds, parameters: Parameters) -> Self {
        Self {
            board: Board::default(),
            keys: KeyCounts::new(identity.instance.0, &bounds),
            buffer: EntryBuffer::default(),
            fast_loop: FastLoop::new(parameters.report_interval),
            schedule: Schedule::new(&parameters),
            warmup: Warmup::default(),
            downstream: Downstream::new(identity.instance, &bounds),
            upstream: Upstream::new(bounds.buckets_max),
            room: Room::new(bounds.buckets_per_client_max),
            counters: Counters::default(),
            admissions: Admissions::default(),
            kills: KillRelay::new(identity.instance),
            modes: Modes::default(),
            identity,
            parameters,
        }
    }

    /// Advances the zone. To be called about every
    /// [period of the fast loop](plimsoll_core::law::parameters::FAST_PERIOD). Returns true if streams of children have
    /// to be woken.
    pub fn on_tick(&mut self, now: MonoTime) -> bool {
        self.downstream.prune(now);
        let have_shown = self.downstream.aggregators.have_shown(now);
        if self.kills.on_tick(now) {
            self.on_kill_change(now);
        }
        let is_warm = self
            .warmup
            .on_tick(now, self.downstream.connected(), have_shown);
        if is_warm {
            self.downstream.resend_all();
        }
        for line in self
            .keys
            .on_tick(now, &mut self.fast_loop.tails, &mut self.upstream.outbox)
        {
            self.fast_loop.close(&self.keys.lines.keys()[line.index()]);
        }
        self.drop_idle_buckets(now);
        self.check_admissions(now);
        let settled = self.is_led(now) && self.downstream.is_settled(now);
        self.fast_loop.on_tick(now, settled);
        if self.schedule.is_due_on_tick(now) {
            self.direct(now, false);
        }
        self.has_downstream_changes() || is_warm
    }

    /// Computes the directives for clients, and for child aggregators if that is due or `from_parent` is true:
    /// the parent sent new directives, or a kill changed.
    fn direct(&mut self, now: MonoTime, from_parent: bool) {
        let clients = self.downstream.clients(now);
        self.schedule.pushes.on_direct(now, clients);
        let context = Context {
            now,
            at: now,
            led: self.is_led(now),
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
        };
        let is_division_due = self
            .downstream
            .begin_division(now, clients > 0, &self.parameters);
        if is_division_due {
            self.fast_loop
                .divide_limits(context, &mut self.downstream.aggregators);
        }
        if is_division_due || from_parent {
            self.direct_aggregators(context);
        }
        for (bucket, posted) in self.board.iter() {
            let mut directive = self.fast_loop.directive(bucket, posted, context);
            directive.terms.mode = self.kills.mode(bucket, posted.terms());
            self.downstream.client_board.apply(&directive);
        }
    }

    fn direct_aggregators(&mut self, context: Context) {
        if self.downstream.aggregators.by_instance.is_empty() {
            return;
        }
        let withholds = self.warmup.withholds();
        for (bucket, posted) in self.board.iter() {
            let mode = self.kills.mode(bucket, posted.terms());
            let aggregators = &self.downstream.aggregators;
            let directives = self.fast_loop.directives_for_aggregators(
                bucket,
                posted,
                context,
                withholds,
                aggregators,
            );
            let mut changed = false;
            for (child, mut directive) in self
                .downstream
                .aggregators
                .by_instance
                .values_mut()
                .zip(directives)
            {
                directive.terms.mode = mode;
                changed |= child.board.apply(&directive);
            }
            self.downstream.aggregators.changes += u64::from(changed);
        }
    }

    fn head(&self) -> Head {
        let mut head = Head::of(self.kills());
        head.lead.leader = self.upstream.leader();
        head.lead.policy_hash = self.upstream.policy_hash;
        head.report_interval = Some(self.schedule.report_interval);
        head
    }

    fn is_led(&self, now: MonoTime) -> bool {
        self.upstream.freshness.is_led(now)
    }

    /// The parts of limits that this zone holds, from any controller.
    fn holds(&self) -> BTreeMap<Bucket, Rate> {
        let each = self
            .board
            .iter()
            .filter_map(|(bucket, posted)| Some((bucket.clone(), posted.terms().hold?)));
        each.collect()
    }
}

impl Zone {
    /// Returns true if the zone lives on its own part of a bucket's limit, because no controller leads or it has sent
    /// no rates.
    pub fn is_on_hold(&self, bucket: &Bucket, now: MonoTime) -> bool {
        self.fast_loop.is_on_hold(bucket, self.is_led(now))
    }

    /// The sessions of all children, including disconnected children that are remembered.
    pub const fn sessions(&self) -> &Sessions {
        &self.downstream.sessions
    }

    /// The number of connected clients that name another zone.
    pub fn foreign_clients(&self) -> usize {
        self.sessions()
            .connected()
            .filter(|child| is_foreign(&self.identity.zone, &child.identity))
            .count()
    }

    /// The loss and error counters.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Every listed tenant and every class, with its cumulative counts.
    pub fn counts(&self) -> impl Iterator<Item = (&Key, Counts)> {
        self.keys.lines.iter()
    }

    /// Returns true if a child has subscribed to a bucket or the controller has sent directives for it.
    pub fn knows(&self, bucket: &Bucket) -> bool {
        self.upstream.subscriptions.contains(bucket) || self.board.get(bucket).is_some()
    }

    pub(crate) fn known_buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.upstream
            .subscriptions
            .iter()
            .chain(self.board.iter().map(|(bucket, _)| bucket))
    }
}
