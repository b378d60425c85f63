//! A snapshot survives the way through text, and no damaged or foreign text is restored.

use std::sync::Arc;

use super::*;
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey, QuotaRate};
use proptest::prelude::*;

fn owner() -> Owner {
    Owner { service: Name::new("shop").unwrap(), zone: Zone::new("eu-1a").unwrap() }
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

fn snapshot() -> Snapshot {
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
            cohort: Cohort { percent: Percent::new(12.5).unwrap(), salt: u64::MAX },
            coin: Coin::Coherent,
            clients: Some(7),
            pool: Some(ZonePool {
                rate: Headroom::Shared(rate(400.5)),
                offered: rate(600.0),
                depth: PoolDepth::nearest(1.234),
                burst: Tokens::new(120.25),
            }),
            quotas: Some(quotas()),
            ..Terms::default()
        },
        keys: vec![key("acme", DropRatio::ONE / 3, Some(rate(0.1))), key("default", u32::MAX, None)],
    };
    let unlimited = BucketDirective {
        bucket: Bucket::new("api/users").unwrap(),
        terms: Terms { limit: Limit::Unlimited, ..Terms::default() },
        keys: Vec::new(),
        whole: true,
    };
    let pool =
        ZonePool { rate: Headroom::None, offered: Rate::ZERO, depth: PoolDepth::MIN, burst: Tokens::NONE };
    let overloaded = BucketDirective {
        bucket: Bucket::new("api/orders").unwrap(),
        terms: Terms { pool: Some(pool), ..checkout.terms.clone() },
        keys: Vec::new(),
        whole: true,
    };
    let kills = [(Bucket::new("search").unwrap(), KillGeneration(2))].into();
    Snapshot {
        epoch: Some(Epoch(41)),
        kill: KillGeneration(3),
        kills,
        buckets: vec![checkout, unlimited, overloaded],
    }
}

fn text() -> String {
    snapshot().to_text(&owner(), Duration::from_secs(1_700_000_000)).unwrap()
}

/// A text with another content and the right checksum.
fn rewritten(from: &str, to: &str) -> String {
    let text = text();
    let body = text.split_once('\n').unwrap().1.trim_end();
    assert!(body.contains(from), "{body}");
    let body = body.replacen(from, to, 1);
    format!("{MARK} {:016x}\n{body}\n", checksum(&body))
}

#[test]
fn snapshot_is_the_same_after_the_way_through_text() {
    let (found, written_at) = Snapshot::of_text(&text(), &owner()).unwrap();
    assert_eq!((found, written_at), (snapshot(), Duration::from_secs(1_700_000_000)));
    let empty = Snapshot::default();
    let text = empty.to_text(&owner(), Duration::ZERO).unwrap();
    assert_eq!(Snapshot::of_text(&text, &owner()).unwrap().0, empty);
}

#[test]
fn text_is_readable() {
    let text = text();
    for line in [
        "plimsoll directives 1 ",
        "\"service\": \"shop\"",
        "\"written_at_s\": 1700000000",
        "\"kill_generation\": 3",
        "\"rps\": 1000.0",
        "\"mode\": \"canary\"",
        "\"ratio\": 0.333",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn torn_changed_or_foreign_text_is_rejected() {
    let other = |service: &str, zone: &str| Owner {
        service: Name::new(service).unwrap(),
        zone: Zone::new(zone).unwrap(),
    };
    let label = |text: &str, owner: &Owner| Snapshot::of_text(text, owner).unwrap_err().label();
    assert_eq!(label(&text(), &other("till", "eu-1a")), "other_owner");
    assert_eq!(label(&text(), &other("shop", "eu-1b")), "other_owner");
    for end in 0..text().len() {
        let torn = &text()[..end];
        assert!(["torn", "version"].contains(&label(torn, &owner())), "{end}");
    }
    let later = text().replacen("directives 1", "directives 2", 1);
    assert_eq!(label(&later, &owner()), "version");
    assert_eq!(label(&text().replacen("41", "42", 1), &owner()), "torn");
}

#[test]
fn invalid_value_is_rejected_even_with_the_right_checksum() {
    for (from, to) in [
        ("\"acme\"", "\"no name\""),
        ("\"checkout\"", "\"\""),
        ("0.333", "1.333"),
        ("1000.0", "-1.0"),
        ("12.5", "120.5"),
        ("\"canary\"", "\"canarie\""),
        ("\"epoch\": 41", "\"epoch\": 4294967297"),
        ("\"epoch\"", "\"epoc\""),
        ("\"max\": 10001", "\"max\": 0"),
        ("\"every_ms\": 3600003", "\"every_ms\": 9223372036854775808"),
        ("\"lease\": 104", "\"lease\": 10002"),
        ("\"global\"", "\"globe\""),
        ("\"api_calls\"", "\"{api}\""),
        ("\"clients\": 7", "\"clients\": -7"),
    ] {
        let error = Snapshot::of_text(&rewritten(from, to), &owner()).unwrap_err();
        assert_eq!(error.label(), "invalid", "{to}: {error}");
    }
    Snapshot::of_text(&rewritten("41", "42"), &owner()).unwrap();
}

proptest! {
    #[test]
    fn no_other_text_is_restored(text in ".{0,300}", end in 0..2_000usize) {
        prop_assert!(Snapshot::of_text(&text, &owner()).is_err());
        let marked = format!("{MARK} {:016x}\n{text}\n", checksum(&text));
        prop_assert!(Snapshot::of_text(&marked, &owner()).is_err());
        let whole = super::tests::text();
        let cut = whole.get(..end.min(whole.len() - 1)).unwrap_or_default();
        prop_assert!(Snapshot::of_text(cut, &owner()).is_err());
    }

    #[test]
    fn ratio_is_exact_after_the_way_through_text(units in 0..=DropRatio::ONE, guard in 0.0..1e12f64) {
        let mut snapshot = snapshot();
        snapshot.buckets[0].keys[0].values =
            Values { ratio: DropRatio::new(units).ok(), guard: Some(rate(guard)), ..Values::default() };
        let text = snapshot.to_text(&owner(), Duration::ZERO).unwrap();
        let found = Snapshot::of_text(&text, &owner()).unwrap().0;
        let [was, is] = [&snapshot, &found].map(|snapshot| snapshot.buckets[0].keys[0].values);
        prop_assert_eq!(was.ratio, is.ratio);
        let off = (was.guard.unwrap().per_second() - is.guard.unwrap().per_second()).abs();
        prop_assert!(off <= 1e-12 * guard);
    }
}
