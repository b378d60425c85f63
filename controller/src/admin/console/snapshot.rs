//! The fleet at one second: read and judged once for all viewers, with the texts that viewers who ask for the same share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use plimsoll_admin::kill_api::{KillState, KillStatus};
use plimsoll_core::names::Bucket;
use plimsoll_host::Shared;
use serde::Serialize;
use serde_json::{Value, json};

use super::rows::{BucketDetail, BucketRow};
use super::view::{Page, Sort, View};
use crate::admin::status::{BucketStatus, Policies, Status, StatusSource};
use crate::brain::Brain;
use crate::bucket::Refusals;

/// Maximum number of aggregators that are shown, those with a fault first.
const AGGREGATORS_MAX: usize = 200;
/// Maximum number of messages that are kept for viewers who ask for the same: two for each viewer, who may reconnect.
const FRAMES_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct Snapshot {
    brain: Shared<Brain>,
    /// The part that is the same for all, as JSON.
    fleet: String,
    buckets: BTreeMap<Bucket, BucketStatus>,
    rows: Vec<BucketRow>,
    /// By view, and with or without the past.
    frames: Mutex<HashMap<(View, bool), Arc<Frame>>>,
}

/// One message of the stream.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    /// The buckets that it shows, by name.
    pub(super) shown: Vec<Bucket>,
}

/// What all viewers see.
#[derive(Serialize)]
struct Fleet<'a> {
    /// The controller's clock, in seconds since 1970.
    at_s: i64,
    /// Without its buckets.
    status: &'a Status,
    aggregators_total: usize,
    kill: &'a KillState,
    /// Buckets with a kill of their own.
    killed_buckets: usize,
    /// Entries in shadow since a kill that has ended.
    in_shadow: usize,
    /// The policy that waits, without its differences, which `/policy` has.
    held: Option<Value>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn take(source: &StatusSource, at_s: i64) -> Self {
        let ((status, policies, kills), recent) = source.collect(Status::of_buckets, |brain| {
            let states = brain.buckets.states.values();
            let each = states.map(|of| (of.name.clone(), of.refusals.last_3_s()));
            each.collect::<HashMap<Bucket, Refusals>>()
        });
        let mut status = source.judged(status, &policies, &kills);
        let buckets = std::mem::take(&mut status.buckets);
        let rows = buckets.iter().map(|(name, status)| {
            let recent = recent.get(name).copied().unwrap_or_default();
            BucketRow::of(name, status, &recent)
        });
        Self {
            brain: source.commands.brain.clone(),
            fleet: fleet(at_s, status, &policies, &kills),
            rows: rows.collect(),
            buckets,
            frames: Mutex::default(),
        }
    }

    /// Returns the message for a view, which is made once.
    pub(super) fn frame(&self, view: &View, with_history: bool) -> Arc<Frame> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (view.clone(), with_history);
        if let Some(frame) = frames.get(&key) {
            return Arc::clone(frame);
        }
        let frame = Arc::new(self.make(view, with_history));
        if frames.len() < FRAMES_MAX {
            frames.insert(key, Arc::clone(&frame));
        }
        frame
    }

    fn make(&self, view: &View, with_history: bool) -> Frame {
        let mut found: Vec<&BucketRow> = self
            .rows
            .iter()
            .filter(|row| row.name.as_str().contains(&view.search))
            .collect();
        match view.sort {
            Sort::Name => {}
            Sort::Worst => found.sort_by_key(|row| Reverse(row.badness())),
            Sort::Offered => {
                found.sort_by(|one, other| other.offered_rps.total_cmp(&one.offered_rps));
            }
        }
        let (page, bucket) = self.brain.with(|brain, now| {
            let complete = |row: &BucketRow| row.clone().complete(brain, now, with_history);
            let bucket = view.bucket.as_ref().and_then(|name| {
                let status = self.buckets.get(name)?.clone();
                let row = self.rows.iter().find(|row| row.name == *name)?;
                BucketDetail::of(brain, now, view, (complete(row), status))
            });
            let page = Page::cut(self.rows.len(), found, view.page, complete);
            (page, bucket)
        });
        let mut shown: Vec<Bucket> = page.rows.iter().map(|it| it.name.clone()).collect();
        shown.sort();
        let page = serde_json::to_string(&page).unwrap_or_default();
        let bucket = serde_json::to_string(&bucket).unwrap_or_default();
        let view = format!("{{\"buckets\":{page},\"bucket\":{bucket}}}");
        Frame {
            bytes: format!("data: {{\"fleet\":{},\"view\":{view}}}\n\n", self.fleet).into(),
            shown,
        }
    }
}

fn fleet(at_s: i64, mut status: Status, policies: &Policies, kills: &KillStatus) -> String {
    let aggregators_total = status.aggregators.len();
    status
        .aggregators
        .sort_by_key(|it| (!it.expired, !it.name_conflict, !it.stale, it.connected));
    status.aggregators.truncate(AGGREGATORS_MAX);
    let fleet = Fleet {
        at_s,
        status: &status,
        aggregators_total,
        kill: &kills.fleet,
        killed_buckets: kills.buckets.values().filter(|it| it.killed).count(),
        in_shadow: kills.in_shadow.len(),
        held: policies.held.as_ref().map(
            |held| json!({ "hash": held.hash, "since_s": held.since_s, "reasons": held.reasons }),
        ),
    };
    // Maps have names for keys, so there is always a text.
    serde_json::to_string(&fleet).unwrap_or_default()
}
