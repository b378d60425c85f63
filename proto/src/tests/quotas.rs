//! Exact quotas on the wire: round trips, sizes, and definitions out of range.

use std::sync::Arc;

use plimsoll_core::names::{InvalidName, Tenant};
use plimsoll_core::quota::{
    BucketQuotas, InvalidBucketQuotas, InvalidQuota, InvalidQuotaRate, LEASE_MAX,
    OVERRIDES_BYTES_MAX, OnStoreError, QUOTAS_PER_BUCKET_MAX, Quota, QuotaKey, QuotaRate,
    TOKENS_MAX,
};

use super::directives::{check_directives, largest_directive, message};
use super::*;

fn quota(name: &str, [max, refill, every_ms]: [u64; 3], lease: u64) -> Quota {
    let rate = QuotaRate::new(max, refill, every_ms).unwrap();
    Quota::new(
        Name::new(name).unwrap(),
        rate,
        QuotaKey::Tenant,
        OnStoreError::Deny,
        lease,
    )
    .unwrap()
}

fn with_overrides(quota: Quota, rates: impl IntoIterator<Item = (String, (u64, u64))>) -> Quota {
    let every_ms = quota.rate.every_ms();
    let rates = rates.into_iter().map(|(entry, (max, refill))| {
        let rate = QuotaRate::new(max, refill, every_ms).unwrap();
        (Tenant::new(&entry).unwrap(), rate)
    });
    quota.with_overrides(rates).unwrap()
}

pub(super) fn any_quotas() -> impl Strategy<Value = BucketQuotas> {
    let number = || prop_oneof![1..10u64, 1..=TOKENS_MAX];
    let on_store_error = select(vec![
        OnStoreError::AllowBounded,
        OnStoreError::Allow,
        OnStoreError::Deny,
    ]);
    let overrides = btree_map("(%~)?[a-z]{1,9}", (number(), number()), 0..3);
    let rest = (
        [number(), number(), number()],
        any::<u64>(),
        on_store_error,
        overrides,
    );
    let key = select(vec![QuotaKey::Tenant, QuotaKey::Global]);
    (key, btree_map(NAME, rest, 0..=QUOTAS_PER_BUCKET_MAX)).prop_map(|(key, quotas)| {
        let each = quotas
            .into_iter()
            .map(|(name, (rate, lease, on_store_error, overrides))| {
                let lease = 1 + lease % LEASE_MAX.min(rate[0]);
                let mut quota = quota(&name, rate, lease);
                (quota.key, quota.on_store_error) = (key, on_store_error);
                if key == QuotaKey::Tenant {
                    quota = with_overrides(quota, overrides);
                }
                Arc::new(quota)
            });
        BucketQuotas::new(each.collect()).unwrap()
    })
}

#[test]
fn bucket_with_most_quotas_fits_a_message() {
    let largest = |number| {
        Arc::new(quota(
            &longest(number),
            [TOKENS_MAX, TOKENS_MAX, TOKENS_MAX],
            LEASE_MAX,
        ))
    };
    let quotas = BucketQuotas::new((0..QUOTAS_PER_BUCKET_MAX).map(largest).collect()).unwrap();
    for (tenants, parts) in [(0, 1), (1_023, 1), (1_300, 2)] {
        let mut directive = largest_directive(&longest(0), tenants);
        directive.terms.quotas = Some(quotas.clone());
        assert_eq!(check_directives(&message(vec![directive])), parts);
    }
}

#[test]
fn bucket_with_most_overrides_fits_a_message() {
    let largest = quota(&longest(0), [TOKENS_MAX; 3], LEASE_MAX);
    for name_bytes in [5, 128] {
        let count = OVERRIDES_BYTES_MAX / (26 + name_bytes);
        let entry = |at: usize| {
            let number = format!("{at:0>name_bytes$}");
            (number, (TOKENS_MAX, TOKENS_MAX))
        };
        let overridden = with_overrides(largest.clone(), (0..count).map(entry));
        let quotas = BucketQuotas::new(vec![Arc::new(overridden)]).unwrap();
        for (tenants, parts) in [(0, 1), (1_023, 2), (2_046, 3)] {
            let mut directive = largest_directive(&longest(0), tenants);
            directive.terms.quotas = Some(quotas.clone());
            assert_eq!(check_directives(&message(vec![directive])), parts);
        }
    }
}

#[test]
fn absent_quotas_differ_from_none() {
    for quotas in [None, Some(BucketQuotas::default())] {
        let mut directive = largest_directive("b", 1);
        directive.terms.quotas = quotas;
        check_directives(&message(vec![directive]));
    }
}

fn wire_quota(name: &str) -> wire::Quota {
    wire::Quota {
        name: name.to_owned(),
        max: 10,
        refill: 10,
        every_ms: 1_000,
        key: wire::QuotaKey::Tenant as i32,
        on_store_error: wire::OnStoreError::Deny as i32,
        lease: 10,
        overrides: Vec::new(),
    }
}

fn overridden(entry: &str, max: u64, refill: u64, quota: wire::Quota) -> wire::Quota {
    let entry = entry.to_owned();
    let overrides = vec![wire::QuotaOverride { entry, max, refill }];
    wire::Quota { overrides, ..quota }
}

fn decode(quotas: Vec<wire::Quota>) -> Result<BucketQuotas, DecodeError> {
    let bucket = wire::BucketDirective {
        bucket: "b".to_owned(),
        mode: wire::Mode::Shadow as i32,
        quotas: Some(wire::Quotas { quotas }),
        ..wire::BucketDirective::default()
    };
    let part = wire::Directives {
        epoch: Some(1),
        seq: 1,
        buckets: vec![bucket],
        ..wire::Directives::default()
    };
    let decoded = DirectivesDecoder::default().decode(part)?.unwrap();
    Ok(decoded.buckets[0].terms.quotas.clone().unwrap())
}

#[test]
fn quotas_out_of_range_are_rejected() {
    let good = || wire_quota("q");
    let rate = |field| DecodeError::QuotaRate(InvalidQuotaRate::OutOfRange(field));
    let name = |source| DecodeError::Name {
        field: "quotas.name",
        source,
    };
    let key = |value| DecodeError::Enumeration {
        field: "quotas.key",
        value,
    };
    for (quotas, error) in [
        (vec![wire::Quota { max: 0, ..good() }], rate("max")),
        (
            vec![wire::Quota {
                max: TOKENS_MAX + 1,
                ..good()
            }],
            rate("max"),
        ),
        (
            vec![wire::Quota {
                refill: 0,
                ..good()
            }],
            rate("refill"),
        ),
        (
            vec![wire::Quota {
                refill: u64::MAX,
                ..good()
            }],
            rate("refill"),
        ),
        (
            vec![wire::Quota {
                every_ms: 0,
                ..good()
            }],
            rate("every"),
        ),
        (
            vec![wire::Quota {
                every_ms: TOKENS_MAX + 1,
                ..good()
            }],
            rate("every"),
        ),
        (
            vec![wire::Quota { lease: 0, ..good() }],
            DecodeError::Quota(InvalidQuota::Lease),
        ),
        (
            vec![wire::Quota {
                lease: 11,
                ..good()
            }],
            DecodeError::Quota(InvalidQuota::Lease),
        ),
        (
            vec![wire::Quota {
                max: TOKENS_MAX,
                lease: LEASE_MAX + 1,
                ..good()
            }],
            DecodeError::Quota(InvalidQuota::Lease),
        ),
        (vec![wire_quota("")], name(InvalidName::Empty)),
        (
            vec![wire_quota("{q}")],
            name(InvalidName::Byte { byte: '{', at: 0 }),
        ),
        (vec![overridden("acme", 0, 1, good())], rate("max")),
        (vec![overridden("acme", 1, 0, good())], rate("refill")),
        (
            vec![overridden("", 1, 1, good())],
            DecodeError::Name {
                field: "quotas.overrides.entry",
                source: InvalidName::Empty,
            },
        ),
        (
            vec![overridden(
                "acme",
                1,
                1,
                wire::Quota {
                    key: wire::QuotaKey::Global as i32,
                    ..good()
                },
            )],
            DecodeError::Quota(InvalidQuota::GlobalOverride),
        ),
        (vec![wire::Quota { key: 0, ..good() }], key(0)),
        (vec![wire::Quota { key: 3, ..good() }], key(3)),
        (
            vec![good(), good()],
            DecodeError::Quotas(InvalidBucketQuotas::Repeated),
        ),
        (
            vec![
                good(),
                wire::Quota {
                    key: wire::QuotaKey::Global as i32,
                    ..wire_quota("r")
                },
            ],
            DecodeError::Quotas(InvalidBucketQuotas::MixedKeys),
        ),
        (
            vec![good(); QUOTAS_PER_BUCKET_MAX + 1],
            DecodeError::TooMany {
                field: "quotas",
                got: QUOTAS_PER_BUCKET_MAX + 1,
                most: QUOTAS_PER_BUCKET_MAX,
            },
        ),
    ] {
        assert_eq!(decode(quotas.clone()), Err(error), "{quotas:?}");
    }
}

#[test]
fn unknown_store_policy_decodes_to_default() {
    for (value, expected) in [
        (0, OnStoreError::AllowBounded),
        (1, OnStoreError::AllowBounded),
        (2, OnStoreError::Allow),
        (3, OnStoreError::Deny),
        (4, OnStoreError::AllowBounded),
    ] {
        let quotas = decode(vec![wire::Quota {
            on_store_error: value,
            ..wire_quota("q")
        }])
        .unwrap();
        assert_eq!(quotas[0].on_store_error, expected, "{value}");
    }
}
