//! The largest policy: what a controller, its aggregators and their clients have room for beside the names that
//! arrive in requests.

use std::collections::BTreeMap;

use crate::yaml::{Checked, Fault, Field, Place, Source};

/// The entries of `buckets` in a policy, patterns included.
pub const BUCKETS_MAX: usize = 10_000;
/// The tenants that a policy lists, the class `default` included.
pub const TENANTS_MAX: usize = 5_000;
/// The keys that follow from a policy: each tenant in each bucket that is listed by its exact name.
pub const KEYS_MAX: usize = 500_000;

/// Checks that a mapping has at most `most` entries. The first one beyond is refused.
pub(crate) fn check_entries(field: &Field<'_>, most: usize, bound: &str, hint: &str) -> Checked<()> {
    let by_place: BTreeMap<Place, Field<'_>> = field.entries().map(|entry| (entry.name_at(), entry)).collect();
    let count = by_place.len();
    by_place.into_values().nth(most).map_or(Ok(()), |beyond| {
        Err(beyond.refuse_name(format_args!("entry {} of {count}, at most {most} fit ({bound})", most + 1), hint))
    })
}

/// Checks that every tenant has room in every bucket. `at` is the place of `buckets` in the policy.
pub(crate) fn check_keys(policy: Source<'_>, at: Place, buckets: usize, tenants: usize) -> Checked<()> {
    let keys = buckets.saturating_mul(tenants);
    if keys <= KEYS_MAX {
        return Ok(());
    }
    let why =
        format!("{buckets} buckets for {tenants} tenants are {keys} keys, at most {KEYS_MAX} fit (KEYS_MAX)");
    let hint = "list fewer tenants: all others share the class `default`";
    Err(Fault::new(policy, at, "buckets", &why, hint))
}
