//! The answer of `/status`: the state of an aggregator for operators.

use std::collections::BTreeMap;

use plimsoll_admin::kill_api::Claimed;
use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::rejected_streams::RefusedChild;
use plimsoll_admin::security::SecurityStatus;
use plimsoll_core::decision::ShownMode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::Role;
use plimsoll_core::stats::AdmissionFigures;
use serde::Serialize;

use crate::zone::Zone;

/// Maximum number of children of one role that are listed. Larger fleets are observed by metrics.
const LISTED_MAX: usize = 1_000;

/// Maximum number of listed buckets that no policy names.
const UNLISTED_MAX: usize = 32;

/// The state of an aggregator at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The version of the aggregator.
    pub version: &'static str,
    /// The zone's name.
    pub zone: String,
    /// The highest controller epoch applied; null before the first.
    pub epoch: Option<u64>,
    /// Host and port of the parent, a controller or an aggregator; null without a stream.
    pub parent: Option<String>,
    /// True while the controller cannot confirm at its store that it leads.
    pub parent_unconfirmed: bool,
    /// Controllers that children or the parent name, other than the current one.
    pub other_controllers: Vec<OtherController>,
    /// Children that are refused again and again.
    pub refused_children: Vec<RefusedChild>,
    /// The certificates and tokens of this aggregator.
    pub security: SecurityStatus,
    /// The kill generation of the fleet; odd means killed.
    pub kill_generation: u64,
    /// Seconds since the controller last covered a roll-up; null if it never did.
    pub upstream_age_s: Option<f64>,
    /// True while the aggregator waits for its children after a restart, or at its start for the parent's answer.
    pub quiet: bool,
    /// Every bucket with a limit, and at most 32 that no policy names.
    pub buckets: BTreeMap<Bucket, BucketStatus>,
    /// Buckets without room, at most 64: they are unprotected, regardless of the policy.
    pub unprotected: Vec<Bucket>,
    /// Connected clients that a kill file stops from refusing, also below child aggregators.
    pub killed_locally: u32,
    /// Kill generations that children hold without an order; they kill nothing here.
    pub kill_claims: Vec<Claimed>,
    /// Clients, including disconnected clients that are remembered; at most 1,000.
    pub clients: Vec<ChildStatus>,
    /// Child aggregators, likewise.
    pub aggregators: Vec<ChildStatus>,
}

/// The state of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BucketStatus {
    /// The current mode; shadow while killed, and unknown if no policy names the bucket.
    pub mode: ShownMode,
    /// The bucket of the policy with the most similar name, if no policy names this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// The connected clients that ask for a bucket that no policy names; null for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// True while the zone lives on its own part of the limit, because no controller leads or it has sent no rates.
    pub on_hold: bool,
    /// That part, in requests/s; null while the controller has sent none.
    pub hold_rps: Option<f64>,
    /// The share of its requests that directives tell clients to refuse, without guards; null without one.
    pub law_ratio: Option<f64>,
    /// Admissions as counted in the last seconds.
    #[serde(flatten)]
    pub admissions: AdmissionFigures,
}

/// The state of one child.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChildStatus {
    /// A name that stays the same across restarts.
    pub name: String,
    /// The service it belongs to.
    pub service: String,
    /// The zone that it names. A client should name that of its aggregator.
    pub zone: String,
    /// True while it has a stream.
    pub connected: bool,
    /// The clients that are killed locally: 1 or 0 for a client, the number of those below for an aggregator.
    pub killed_locally: u32,
    /// Requests that it reported and cannot have decided, which were not counted.
    pub counts_cut: u64,
    /// Seconds since its first report here.
    pub since_s: f64,
    /// Seconds since its latest report.
    pub heard_s: f64,
    /// Sequence number of the latest report on its present stream.
    pub seq: u64,
}

impl Status {
    /// Reads the state of a zone.
    pub fn of(zone: &Zone, now: MonoTime) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            zone: zone.identity.zone.to_string(),
            epoch: zone.upstream.epoch().map(|epoch| epoch.0),
            other_controllers: OtherController::list(&zone.upstream.leaders.others, now),
            parent: None,
            parent_unconfirmed: zone.upstream.unconfirmed,
            refused_children: Vec::new(),
            security: SecurityStatus::default(),
            kill_generation: zone.kills().fleet().0,
            upstream_age_s: zone
                .upstream
                .freshness
                .age(now)
                .map(|age| age.as_secs_f64()),
            quiet: zone.warmup.withholds(),
            buckets: limited(zone, now)
                .into_iter()
                .chain(unlisted(zone))
                .collect(),
            unprotected: zone
                .room
                .refused
                .iter()
                .map(|(bucket, _)| bucket.clone())
                .collect(),
            killed_locally: zone.downstream.clients_below().killed_locally,
            kill_claims: Claimed::list(zone.kills.claims()),
            clients: children(zone, now, Role::Client),
            aggregators: children(zone, now, Role::Aggregator),
        }
    }
}

fn children(zone: &Zone, now: MonoTime, role: Role) -> Vec<ChildStatus> {
    let children = zone.sessions().iter();
    let (connected, away): (Vec<_>, Vec<_>) = children
        .filter(|child| child.identity.role == role)
        .partition(|child| child.stream.is_some());
    let listed = connected.into_iter().chain(away).take(LISTED_MAX);
    let each = listed.map(|child| ChildStatus {
        name: child.identity.name.to_string(),
        service: child.identity.service.to_string(),
        zone: child.identity.zone.to_string(),
        connected: child.stream.is_some(),
        killed_locally: child.clients.killed_locally,
        counts_cut: child.cut,
        since_s: now.since(child.since).as_secs_f64(),
        heard_s: now.since(child.last_report).as_secs_f64(),
        seq: child.books.seq(),
    });
    each.collect()
}

/// Returns the buckets with a limit.
pub(crate) fn limited(zone: &Zone, now: MonoTime) -> BTreeMap<Bucket, BucketStatus> {
    let limited = zone
        .board
        .iter()
        .filter(|(_, posted)| posted.terms().limit.shown().is_some());
    let each = limited.map(|(bucket, posted)| {
        let hold_rps = posted.terms().hold.map(Rate::per_second);
        let mode = zone.kills().mode(bucket, posted.terms());
        let status = BucketStatus {
            mode: Some(mode).into(),
            on_hold: zone.is_on_hold(bucket, now),
            hold_rps,
            law_ratio: zone.law_ratio(bucket),
            admissions: zone.admission_figures(bucket),
            ..BucketStatus::default()
        };
        (bucket.clone(), status)
    });
    each.collect()
}

/// Returns buckets that no policy names, at most [`UNLISTED_MAX`].
fn unlisted(zone: &Zone) -> impl Iterator<Item = (Bucket, BucketStatus)> {
    let each = zone.board.iter().filter_map(|(bucket, posted)| {
        let clients = zone
            .sessions()
            .connected()
            .filter(|child| child.identity.role == Role::Client && child.is_subscribed(bucket));
        let nearest = posted.terms().unlisted?.nearest().map(str::to_owned);
        let clients = Some(clients.count());
        Some((
            bucket.clone(),
            BucketStatus {
                nearest,
                clients,
                ..BucketStatus::default()
            },
        ))
    });
    each.take(UNLISTED_MAX)
}
