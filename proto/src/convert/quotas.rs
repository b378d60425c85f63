//! Conversions of the exact quotas of a bucket.

use std::sync::Arc;

use plimsoll_core::names::{Name, Tenant};
use plimsoll_core::quota::{
    BucketQuotas, OnStoreError, QUOTAS_PER_BUCKET_MAX, Quota, QuotaKey, QuotaRate,
};

use super::DecodeError;
use super::scalars::{decode_list, decode_name};
use crate::wire;

pub(super) fn encode_quotas(quotas: &BucketQuotas) -> wire::Quotas {
    wire::Quotas {
        quotas: quotas.iter().map(|quota| encode_quota(quota)).collect(),
    }
}

fn encode_quota(quota: &Quota) -> wire::Quota {
    wire::Quota {
        name: quota.name.to_string(),
        max: quota.rate.max(),
        refill: quota.rate.refill(),
        every_ms: quota.rate.every_ms(),
        key: match quota.key {
            QuotaKey::Tenant => wire::QuotaKey::Tenant,
            QuotaKey::Global => wire::QuotaKey::Global,
        } as i32,
        on_store_error: match quota.on_store_error {
            OnStoreError::AllowBounded => wire::OnStoreError::AllowBounded,
            OnStoreError::Allow => wire::OnStoreError::Allow,
            OnStoreError::Deny => wire::OnStoreError::Deny,
        } as i32,
        lease: quota.lease(),
        overrides: quota.overrides().iter().map(encode_override).collect(),
    }
}

fn encode_override((entry, quota): (&Tenant, &Arc<Quota>)) -> wire::QuotaOverride {
    wire::QuotaOverride {
        entry: entry.to_string(),
        max: quota.rate.max(),
        refill: quota.rate.refill(),
    }
}

/// Decodes the quotas of a bucket. An empty list means that it has none.
pub(super) fn decode_quotas(quotas: &wire::Quotas) -> Result<BucketQuotas, DecodeError> {
    let decode = |quota: &wire::Quota| decode_quota(quota).map(Arc::new);
    let quotas = decode_list("quotas", &quotas.quotas, QUOTAS_PER_BUCKET_MAX, decode)?;
    Ok(BucketQuotas::new(quotas)?)
}

fn decode_quota(quota: &wire::Quota) -> Result<Quota, DecodeError> {
    let name = decode_name("quotas.name", &quota.name, Name::new)?;
    let rate = QuotaRate::new(quota.max, quota.refill, quota.every_ms)?;
    // A kind of key from a later version cannot be enforced.
    let key = match wire::QuotaKey::try_from(quota.key) {
        Ok(wire::QuotaKey::Tenant) => QuotaKey::Tenant,
        Ok(wire::QuotaKey::Global) => QuotaKey::Global,
        Ok(wire::QuotaKey::Unspecified) | Err(_) => {
            return Err(DecodeError::Enumeration {
                field: "quotas.key",
                value: quota.key,
            });
        }
    };
    // The default replaces an absent value and a value of a later version.
    let on_store_error = match wire::OnStoreError::try_from(quota.on_store_error) {
        Ok(wire::OnStoreError::Allow) => OnStoreError::Allow,
        Ok(wire::OnStoreError::Deny) => OnStoreError::Deny,
        Ok(wire::OnStoreError::AllowBounded | wire::OnStoreError::Unspecified) | Err(_) => {
            OnStoreError::AllowBounded
        }
    };
    let overrides = quota.overrides.iter().map(|of| {
        let entry = decode_name("quotas.overrides.entry", &of.entry, Tenant::new)?;
        let rate = QuotaRate::new(of.max, of.refill, quota.every_ms)?;
        Ok((entry, rate))
    });
    let overrides = overrides.collect::<Result<Vec<_>, DecodeError>>()?;
    let quota = Quota::new(name, rate, key, on_store_error, quota.lease)?;
    Ok(quota.with_overrides(overrides)?)
}
