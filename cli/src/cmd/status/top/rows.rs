//! The rows of `plimsoll top`: what a column shows, and what it sorts by.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use plimsoll_controller::admin::status::{AggregatorStatus, BucketStatus, Status, Traffic};
use plimsoll_core::names::{Bucket, Tenant};

use super::state::View;
use crate::cmd::status::state_of;
use crate::output::percent;

/// A line of a table.
pub(super) struct Row<'a> {
    /// Identity from one answer to the next: bucket and tenant, or zone and name.
    pub(super) id: [&'a str; 2],
    pub(super) cells: Vec<Cell<'a>>,
}

/// The value of a column.
pub(super) enum Cell<'a> {
    Text(Cow<'a, str>),
    Number(Option<f64>),
    Share(Option<f64>),
}

/// Returns the titles of the columns of a view; none for a text.
pub(super) fn columns(view: &View) -> &'static [&'static str] {
    match view {
        View::Buckets => &[
            "BUCKET", "MODE", "OFFER/s", "LIMIT/s", "REFUSED", "IN 5 MIN", "WOULD",
        ],
        View::Tenants(_) => &["TENANT", "BUCKET", "OFFER/s", "SHARE/s", "LAW", "REASON"],
        View::Zones => &["ZONE", "STATE", "SILENT s", "RELEASED", "KILLED"],
        View::Problems | View::Why(..) => &[],
    }
}

/// Returns the rows of a view, in no order.
pub(super) fn rows<'a>(status: &'a Status, view: &View) -> Vec<Row<'a>> {
    let buckets = status.buckets.iter();
    match view {
        View::Buckets => buckets.map(of_bucket).collect(),
        View::Tenants(only) => {
            let shown = buckets.filter(|(name, _)| only.as_ref().is_none_or(|only| only == *name));
            let each =
                shown.flat_map(|(name, of)| of.tenants.iter().map(move |it| of_tenant(name, it)));
            each.collect()
        }
        View::Zones => status.aggregators.iter().map(of_aggregator).collect(),
        View::Problems | View::Why(..) => Vec::new(),
    }
}

fn of_bucket<'a>((name, of): (&'a Bucket, &'a BucketStatus)) -> Row<'a> {
    let (lately, before) = (&of.refusals_10_s, &of.refusals_5_min);
    let cells = vec![
        Cell::text(name.as_str()),
        Cell::text(if of.killed {
            "killed"
        } else {
            of.mode.as_str()
        }),
        Cell::Number(Some(of.traffic.offered_rps)),
        Cell::Number(of.limit_rps),
        Cell::Share(Some(lately.ratio())),
        Cell::Share(Some(before.ratio())),
        Cell::Share(Some(lately.would_ratio())),
    ];
    let id = [name.as_str(), ""];
    Row { id, cells }
}

fn of_tenant<'a>(bucket: &'a Bucket, (tenant, of): (&'a Tenant, &'a Traffic)) -> Row<'a> {
    let id = [bucket.as_str(), tenant.as_str()];
    let cells = vec![
        Cell::text(id[1]),
        Cell::text(id[0]),
        Cell::Number(Some(of.offered_rps)),
        Cell::Number(of.law_ratio.map(|_| of.allocated_rps)),
        Cell::Share(of.law_ratio),
        Cell::text(of.drop_reason.map_or("-", |reason| reason.as_str())),
    ];
    Row { id, cells }
}

fn of_aggregator(of: &AggregatorStatus) -> Row<'_> {
    let cells = vec![
        Cell::Text(format!("{}/{}", of.zone, of.name).into()),
        Cell::text(state_of(of)),
        Cell::Number(Some(of.last_report_s)),
        Cell::Share(Some(of.released)),
        Cell::Number(Some(of.killed_locally.into())),
    ];
    let id = [of.zone.as_str(), of.name.as_str()];
    Row { id, cells }
}

impl<'a> Cell<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let number = |cell: &Self| match cell {
            Self::Number(Some(number)) | Self::Share(Some(number)) => *number,
            _ => f64::NEG_INFINITY,
        };
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => number(self).total_cmp(&number(other)),
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(Some(number)) => write!(f, "{number:.0}"),
            Self::Share(Some(share)) => f.write_str(&percent(*share)),
            Self::Number(None) | Self::Share(None) => f.write_str("-"),
        }
    }
}
