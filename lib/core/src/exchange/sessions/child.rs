//! One child of a parent: its identity, its counts, and the directives sent on its present stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::HEARTBEAT;
use crate::directive::{Audience, Board, Directives, Message, SentLead};
use crate::exchange::StreamId;
use crate::kill::Kills;
use crate::kill::drill::Drill;
use crate::names::{Bucket, Name};
use crate::quantity::MonoTime;
use crate::report::{Books, ClientCounts, Echo, Identity, Report};

/// One child.
#[derive(Debug)]
pub struct ChildSession {
    /// The identity from its greeting.
    pub identity: Identity,
    /// The version of Plimsoll from its greeting; only aggregators name theirs.
    pub version: Option<Name>,
    /// The counts received from it.
    pub books: Books,
    /// Its present stream; `None` while it is away.
    pub stream: Option<StreamId>,
    /// The time of its first greeting here.
    pub since: MonoTime,
    /// The time of its last report; while it is away, of the end of its last stream.
    pub last_report: MonoTime,
    /// By bucket: the clients that carry out less than the mode that they were sent.
    pub(super) unapplied: BTreeMap<Bucket, u32>,
    /// The clients that its latest report is about: the child itself, or those connected below it.
    pub clients: ClientCounts,
    /// Requests that it reported and cannot have decided, which were not counted.
    pub cut: u64,
    /// The value of `cut` when it was last logged.
    pub(super) cut_taken: u64,
    /// The time when the share of its books was set aside.
    pub(super) share_since: MonoTime,
    /// Its highest report that the controller has covered.
    pub confirmed: u64,
    pub(super) sent: SentState,
}

/// The state that was sent on the present stream.
#[derive(Debug, Default)]
pub(super) struct SentState {
    pub(super) seq: u64,
    pub(super) at: Option<MonoTime>,
    pub(super) head: Option<Head>,
    /// The version of the kill generations.
    pub(super) kills: u64,
    /// The subscribed buckets that were sent before.
    pub(super) audience: Audience,
    /// The version of the board.
    pub(super) seen: u64,
    /// The subscribed buckets that were not sent yet.
    pub(super) fresh: BTreeSet<Bucket>,
}

/// The head of every message, the same for all children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The controller, if known.
    pub lead: SentLead,
    /// The version of all kill generations.
    pub kills: u64,
    /// The latest drill.
    pub drill: Drill,
    /// The report interval; `None` leaves it to the child.
    pub report_interval: Option<Duration>,
}

impl Head {
    /// Builds a head with only the kill generations.
    pub fn of(kills: &Kills) -> Self {
        Self {
            kills: kills.version(),
            lead: SentLead {
                forgotten: kills.forgotten,
                ..SentLead::default()
            },
            drill: kills.drill(),
            ..Self::default()
        }
    }
}

impl ChildSession {
    /// Subscribes the child to a bucket.
    pub fn subscribe(&mut self, bucket: &Bucket) {
        if !self.is_subscribed(bucket) {
            self.sent.fresh.insert(bucket.clone());
        }
    }

    /// Ends the child's subscription to a bucket.
    pub fn unsubscribe(&mut self, bucket: &Bucket) {
        self.sent.fresh.remove(bucket);
        if self.sent.audience.contains(bucket) {
            Arc::make_mut(&mut self.sent.audience).remove(bucket);
        }
    }

    /// Returns true if the child is subscribed to a bucket.
    pub fn is_subscribed(&self, bucket: &Bucket) -> bool {
        self.sent.audience.contains(bucket) || self.sent.fresh.contains(bucket)
    }

    /// The buckets that the child is subscribed to.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Bucket> {
        self.sent.audience.iter().chain(&self.sent.fresh)
    }

    pub(super) fn take_modes(&mut self, report: &Report) {
        for (bucket, mode) in &report.modes {
            self.unapplied.remove(bucket);
            // The name of the subscription is kept, so that no child adds its own names.
            let known = self
                .sent
                .audience
                .get(bucket)
                .or_else(|| self.sent.fresh.get(bucket));
            if let Some(known) = known.filter(|_| mode.unapplied > 0) {
                self.unapplied
                    .insert(known.clone(), mode.unapplied.min(self.clients.connected));
            }
        }
    }

    /// Marks head and buckets as not sent, so that the next message has all of them. Kills of buckets are not
    /// repeated.
    pub fn resend_all(&mut self) {
        self.sent.head = None;
        self.sent.seen = 0;
    }

    /// Returns the next message to this child, if there are changes or a heartbeat is due. While `values` is
    /// false, values are left out, and sent again only after `resend_all`. O(1) for all but the first child of an
    /// audience after a change, except for buckets that are new to the child.
    pub fn next_message(
        &mut self,
        now: MonoTime,
        head: Head,
        board: &mut Board,
        values: bool,
        echo: Echo,
        kills: &Kills,
    ) -> Option<Message> {
        let sent = &mut self.sent;
        let shared = board.audience_update(&sent.audience, sent.seen, values);
        let mut first = Vec::new();
        if !sent.fresh.is_empty() {
            first.extend(
                sent.fresh
                    .iter()
                    .filter_map(|bucket| board.update(bucket, 0, values)),
            );
            let mut buckets = (*sent.audience).clone();
            buckets.append(&mut sent.fresh);
            sent.audience = board.audience(buckets);
        }
        sent.seen = board.version();
        let heartbeat = HEARTBEAT.max(head.report_interval.unwrap_or_default());
        let due = sent.at.is_none_or(|at| now.since(at) >= heartbeat);
        if shared.is_none() && first.is_empty() && !due && sent.head == Some(head) {
            return None;
        }
        let news = kills.news(sent.kills);
        sent.kills = kills.version();
        sent.seq += 1;
        sent.at = Some(now);
        sent.head = Some(head);
        let head = Directives {
            lead: head.lead,
            seq: sent.seq,
            kills: news,
            echo,
            report_interval: head.report_interval,
            parent: (sent.seq == 1).then(|| self.books.parent()),
            ..Directives::default()
        };
        Some(Message {
            head,
            shared,
            first,
        })
    }
}
