//! Directives survive the way through a file, and none that are damaged or foreign are restored.

use plimsoll_core::kill::KillNews;
use std::sync::Arc;

use super::*;
use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{
    BucketDirective, Epoch, Headroom, KeyDirective, PoolDepth, SentLead, Terms, Values, ZonePool,
};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit, Rate};
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};
use plimsoll_core::rollout::{Cohort, Percent};

fn owner() -> Owner {
    Owner {
        service: Name::new("shop").unwrap(),
        zone: Zone::new("eu-1a").unwrap(),
    }
}

fn rate(per_second: f64) -> Rate {
    Rate::new(per_second).unwrap()
}

fn quotas() -> BucketQuotas {
    let rate = QuotaRate::new(10_001, 5_002, 3_600_003).unwrap();
    let name = Name::new("api_calls").unwrap();
    let quota = Quota::new(name, rate, QuotaKey::Global, OnStoreError::Deny, 104).unwrap();
    BucketQuotas::new(vec![Arc::new(quota)]).unwrap()
}

fn directives() -> Directives {
    let key = |tenant: &str, units, guard| KeyDirective {
        tenant: Tenant::new(tenant).unwrap(),
        values: Values {
            ratio: DropRatio::new(units).ok(),
            guard,
            offered: guard,
            at_tenant_limit: guard.map(|_| true),
            ..Values::default()
        },
    };
    let checkout = BucketDirective {
        bucket: Bucket::new("checkout").unwrap(),
        whole: true,
        terms: Terms {
            limit: Limit::PerSecond(rate(1_000.0)),
            mode: Mode::Canary,
            cohort: Cohort {
                percent: Percent::new(12.5).unwrap(),
                salt: u64::MAX,
            },
            coin: Coin::Coherent,
            clients: Some(7),
            pool: Some(ZonePool {
                rate: Headroom::Shared(rate(400.5)),
                offered: rate(600.0),
                depth: PoolDepth::nearest(1.25),
                burst: TokenCount::new(120.25),
            }),
            quotas: Some(quotas()),
            ..Terms::default()
        },
        keys: vec![
            key("acme", DropRatio::ONE / 3, Some(rate(0.1))),
            key("default", u32::MAX, None),
        ],
    };
    let unlimited = BucketDirective {
        bucket: Bucket::new("api/users").unwrap(),
        terms: Terms {
            limit: Limit::Unlimited,
            ..Terms::default()
        },
        keys: Vec::new(),
        whole: true,
    };
    let pool = ZonePool {
        rate: Headroom::None,
        offered: Rate::ZERO,
        depth: PoolDepth::MIN,
        burst: TokenCount::NONE,
    };
    let overloaded = BucketDirective {
        bucket: Bucket::new("api/orders").unwrap(),
        terms: Terms {
            pool: Some(pool),
            ..checkout.terms.clone()
        },
        keys: Vec::new(),
        whole: true,
    };
    let kills = [(Bucket::new("search").unwrap(), KillGeneration(2))].into();
    let buckets = vec![checkout, unlimited, overloaded];
    Directives {
        lead: Epoch(41).into(),
        seq: 1,
        kills: KillNews {
            fleet: KillGeneration(3),
            buckets: kills,
            ..KillNews::default()
        },
        buckets,
        ..Directives::default()
    }
}

fn bytes(directives: Directives) -> Vec<u8> {
    write(directives, &owner(), Duration::from_secs(1_700_000_000))
}

fn label(bytes: &[u8]) -> &'static str {
    match read(bytes, &owner()).unwrap_err() {
        SnapshotError::Torn => "torn",
        SnapshotError::Version => "version",
        SnapshotError::Invalid(_) => "invalid",
        SnapshotError::OtherOwner(_) => "other_owner",
    }
}

#[test]
fn directives_are_the_same_after_a_restart() {
    for directives in [
        directives(),
        Directives {
            seq: 1,
            ..Directives::default()
        },
    ] {
        let read = read(&bytes(directives.clone()), &owner()).unwrap();
        assert_eq!(read, (directives, Duration::from_secs(1_700_000_000)));
    }
}

#[test]
fn torn_changed_or_foreign_file_is_rejected() {
    let whole = bytes(directives());
    for end in 0..whole.len() {
        assert!(["torn", "version"].contains(&label(&whole[..end])), "{end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(["torn", "version"].contains(&label(&changed)), "{at}");
    }
    for (service, zone) in [("till", "eu-1a"), ("shop", "eu-1b")] {
        let other = Owner {
            service: Name::new(service).unwrap(),
            zone: Zone::new(zone).unwrap(),
        };
        assert!(matches!(
            read(&whole, &other),
            Err(SnapshotError::OtherOwner(_))
        ));
    }
}

#[test]
fn invalid_value_is_rejected_despite_its_checksum() {
    let epoch = |epoch| Directives {
        lead: Epoch(epoch).into(),
        ..directives()
    };
    assert!(read(&bytes(epoch(EPOCH_JUMP_MAX)), &owner()).is_ok());
    for invalid in [
        epoch(EPOCH_JUMP_MAX + 1),
        Directives {
            kills: KillGeneration(u64::MAX).into(),
            ..directives()
        },
        Directives {
            lead: SentLead::default(),
            ..directives()
        },
    ] {
        assert_eq!(label(&bytes(invalid)), "invalid");
    }
    for body in [
        &b"17 shop eu-1a\n\x02\xff\xff"[..],
        b"17 shop eu-1a\n",
        b"now shop eu-1a\n\0",
    ] {
        assert_eq!(label(&with_checksum(body)), "invalid");
    }
}
