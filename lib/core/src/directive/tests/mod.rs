//! Tests of the order of directives, and of the state that readers of the board end up with.

mod board;
mod readers;
mod sequence;

use std::sync::Arc;

use super::*;
use crate::decision::coherent::CoinKey;
use crate::decision::token_bucket::TokenCount;
use crate::names::Name;
use crate::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use crate::rollout::Percent;

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn ratio(tenths: u32) -> DropRatio {
    DropRatio::new(DropRatio::ONE / 10 * tenths).unwrap()
}

fn rate(per_second: u32) -> Rate {
    Rate::new(f64::from(per_second)).unwrap()
}

fn per_second(per_second: u32) -> Limit {
    Limit::PerSecond(rate(per_second))
}

fn drops(tenths: Option<u32>) -> Values {
    Values {
        ratio: tenths.map(ratio),
        ..Values::default()
    }
}

fn everything(number: u32) -> Values {
    Values {
        ratio: Some(ratio(number)),
        rate: Some(rate(number + 10)),
        cap: Some(rate(number + 20)),
        entitlement: Some(entitlement(number)),
        guard: Some(rate(number + 30)),
        offered: Some(rate(number + 40)),
        at_tenant_limit: Some(number.is_multiple_of(2)),
    }
}

fn entitlement(number: u32) -> Entitlement {
    Entitlement {
        weight: Weight::new(f64::from(number + 1)).unwrap(),
        floor: rate(number),
        tenant_limit: (number % 2 == 1).then(|| rate(number + 50)),
        limit_owner: LimitOwner::Plan,
    }
}

fn pool(number: u32) -> ZonePool {
    ZonePool {
        rate: Headroom::Shared(rate(number)),
        offered: rate(number + 1),
        depth: PoolDepth::new(1_000 + number).unwrap(),
        burst: TokenCount::new(f64::from(number)),
    }
}

/// One quota of so many tokens; none for 0.
fn cut(number: u32) -> TailCut {
    let ratio = DropRatio::new(number).unwrap();
    TailCut {
        level: Some(rate(number)),
        new_level: None,
        ratio,
        tenant_limit: None,
    }
}

fn new_share(number: u32) -> NewShare {
    NewShare::new(number).unwrap()
}

fn quotas(max: u64) -> BucketQuotas {
    let quota = |max| {
        let (name, rate) = (
            Name::new("calls").unwrap(),
            QuotaRate::new(max, max, 1_000).unwrap(),
        );
        Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::AllowBounded, 1)
            .map(Arc::new)
            .unwrap()
    };
    BucketQuotas::new((max > 0).then(|| quota(max)).into_iter().collect()).unwrap()
}

fn salted(salt: u64) -> Coherence {
    Coherence {
        key: CoinKey::from_bytes([7; 16]),
        salt,
    }
}

fn terms(limit: Limit) -> Terms {
    Terms {
        limit,
        ..Terms::default()
    }
}

fn directive_of(whole: bool, terms: Terms, keys: &[(&str, Values)]) -> BucketDirective {
    let keys = keys
        .iter()
        .map(|(name, values)| KeyDirective {
            tenant: tenant(name),
            values: *values,
        })
        .collect();
    BucketDirective {
        bucket: bucket("b"),
        whole,
        terms,
        keys,
    }
}

fn directive(whole: bool, limit: Limit, keys: &[(&str, Option<u32>)]) -> BucketDirective {
    let keys: Vec<(&str, Values)> = keys
        .iter()
        .map(|(name, tenths)| (*name, drops(*tenths)))
        .collect();
    directive_of(whole, terms(limit), &keys)
}
