//! The largest policy: what a controller, its aggregators and their clients have room for, in
//! addition to the names that arrive in requests.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;

use crate::buckets::{BucketPolicy, LimitSource};
use crate::yaml::{Checked, Field, PolicyFault, Source, SourcePlace};

/// The entries of `buckets` in a policy, patterns included.
pub const BUCKETS_MAX: usize = 10_000;
/// The tenants that a policy lists, the class `default` included.
pub const TENANTS_MAX: usize = 5_000;
/// The entries of `buckets` with a learned limit that are no patterns: the history of more is not kept.
pub const LEARNED_MAX: usize = 1_000;
/// The keys that follow from a policy: each tenant in each bucket that is listed by its exact name.
pub const KEYS_MAX: usize = 500_000;

/// Checks that the history of every bucket with a learned limit has room. The one first beyond in the order of
/// names is refused.
pub(crate) fn check_learned(
    field: &Field<'_>,
    buckets: &BTreeMap<Bucket, BucketPolicy>,
) -> Checked<()> {
    let learned = buckets
        .iter()
        .filter(|(_, bucket)| matches!(bucket.source, LimitSource::Learned(_)));
    let mut beyond = learned.skip(LEARNED_MAX);
    beyond.next().map_or(Ok(()), |(bucket, _)| {
        let why =
            format_args!("the history of at most {LEARNED_MAX} buckets is kept (LEARNED_MAX)")
                .to_string();
        let field = field.then(bucket.as_str()).then("limit");
        Err(field.refuse_name(
            why,
            "write a number, or let a pattern cover several buckets",
        ))
    })
}

pub(crate) fn check_keys(
    policy: Source<'_>,
    at: SourcePlace,
    buckets: usize,
    tenants: usize,
) -> Checked<()> {
    let keys = buckets.saturating_mul(tenants);
    if keys <= KEYS_MAX {
        return Ok(());
    }
    let why = format!(
        "{buckets} buckets for {tenants} tenants are {keys} keys, at most {KEYS_MAX} fit (KEYS_MAX)"
    );
    let hint = "list fewer tenants: all others share the class `default`";
    Err(PolicyFault::new(policy, at, "buckets", &why, hint))
}
