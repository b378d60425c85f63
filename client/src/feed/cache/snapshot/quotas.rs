//! The exact quotas of a bucket in a snapshot.

use std::sync::Arc;

use plimsoll_core::names::Name;
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};
use serde::{Deserialize, Serialize};

use super::SnapshotError;

/// One quota.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaText {
    name: Name,
    max: u64,
    refill: u64,
    every_ms: u64,
    key: QuotaKey,
    on_store_error: OnStoreError,
    lease: u64,
}

pub(super) fn to_text(quotas: &BucketQuotas) -> Vec<QuotaText> {
    let text = |quota: &Arc<Quota>| QuotaText {
        name: quota.name.clone(),
        max: quota.rate.max(),
        refill: quota.rate.refill(),
        every_ms: quota.rate.every_ms(),
        key: quota.key,
        on_store_error: quota.on_store_error,
        lease: quota.lease(),
    };
    quotas.iter().map(text).collect()
}

/// Reads the quotas of a bucket.
pub(super) fn of_text(texts: &[QuotaText]) -> Result<BucketQuotas, SnapshotError> {
    let quota = |text: &QuotaText| {
        let rate = QuotaRate::new(text.max, text.refill, text.every_ms).map_err(|error| invalid(&error))?;
        let (name, key, on_store_error) = (text.name.clone(), text.key, text.on_store_error);
        Quota::new(name, rate, key, on_store_error, text.lease).map(Arc::new).map_err(|error| invalid(&error))
    };
    let quotas = texts.iter().map(quota).collect::<Result<Vec<_>, _>>()?;
    BucketQuotas::new(quotas).map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::fmt::Display) -> SnapshotError {
    SnapshotError::Invalid(format!("quotas: {error}"))
}
