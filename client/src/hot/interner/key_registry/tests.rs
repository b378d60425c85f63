//! Tests of the changes that the registry reports to the subscription.

use std::sync::Arc;

use super::*;
use crate::hot::table::BucketPlace;
use crate::hot::thread_counters::{Outcome, QuotaOutcome};

struct Known {
    table: Arc<Table>,
    registry: KeyRegistry,
    bucket: BucketPlace,
    buckets: Vec<Bucket>,
    second: u64,
    settled: bool,
}

impl Known {
    fn new(keys: usize) -> Self {
        let table = Arc::new(Table::new(keys, 4, 7));
        let bucket = table.declare("api").unwrap().unwrap();
        let mut known = Self {
            table,
            registry: KeyRegistry::default(),
            bucket,
            buckets: vec![Bucket::new("api").unwrap()],
            second: 0,
            settled: true,
        };
        assert_eq!(known.sync(), [Change::Inserted(0)]);
        known
    }

    fn request(&self, tenant: &str, times: u64) -> u32 {
        let mut key = 0;
        for _ in 0..times {
            key = self.table.target(self.bucket, tenant).key;
            self.table
                .counters
                .current_thread()
                .add(key, Outcome::Admitted, 1);
        }
        key
    }

    fn sync(&mut self) -> Vec<Change> {
        let log = self.table.keys.take_log();
        let changes = self.registry.sync(&self.table, &self.buckets, &log);
        self.table.keys.return_log(log);
        changes
    }

    /// Passes seconds; in each of them, each of these tenants sends one request.
    fn wait(&mut self, seconds: u64, active: &[&str]) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..seconds {
            active.iter().for_each(|tenant| _ = self.request(tenant, 1));
            self.second += 1;
            changes.extend(self.sync());
            let now = MonoTime::from_elapsed(Duration::from_secs(self.second));
            let settled = self.settled;
            changes.extend(
                self.registry
                    .sweep(now, &self.table, |_| false, |_, _| settled),
            );
        }
        changes
    }

    fn offered(&self, id: u32) -> u64 {
        self.registry.counts(&self.table, KeyId(id)).offered
    }

    fn name(&self, id: u32) -> &str {
        self.registry.keys()[id as usize].tenant.as_str()
    }
}

#[test]
fn replaced_key_leaves_neither_directive_nor_counts() {
    let mut known = Known::new(2);
    known.table.publish(
        1,
        DirectiveWord::new(plimsoll_core::quantity::DropRatio::ALL),
    );
    assert_eq!(known.request("acme", 5), 1);
    // No more requests: a minute until eviction, and ten seconds of tombstone.
    assert_eq!(
        known.wait(80, &[]),
        [Change::Inserted(1), Change::Released(1)]
    );
    assert_eq!(
        (known.offered(1), known.name(1)),
        (5, "acme"),
        "it is still reported"
    );
    let target = known.table.target_of(known.registry.places()[1]);
    assert_eq!(
        (target.source(), target.word()),
        (0, DirectiveWord::NOTHING)
    );
    assert_eq!(known.request("globex", 3), 1);
    assert_eq!(known.sync(), [Change::Replaced(1)]);
    assert_eq!((known.offered(1), known.name(1)), (3, "globex"));
    assert_eq!(known.offered(0), 0);
}

#[test]
fn revived_key_continues_its_counts() {
    let mut known = Known::new(8);
    for (seconds, changes) in [
        (65, vec![Change::Revived(1)]),
        (80, vec![Change::Released(1), Change::Revived(1)]),
        (200, vec![Change::Released(1), Change::Revived(1)]),
    ] {
        let before = known.offered(1);
        assert_eq!(known.request("acme", 5), 1);
        known.sync();
        let mut seen = known.wait(seconds, &[]);
        assert_eq!(known.request("acme", 1), 1);
        seen.extend(known.sync());
        assert_eq!(seen, changes, "after {seconds} s");
        assert_eq!((known.offered(1), known.name(1)), (before + 6, "acme"));
    }
}

#[test]
fn remembered_refusal_keeps_its_key_active() {
    let mut known = Known::new(8);
    assert_eq!(known.request("acme", 5), 1);
    known.sync();
    for _ in 0..130 {
        known
            .table
            .counters
            .quotas
            .add(1, QuotaOutcome::Repeated, 1);
        assert_eq!(known.wait(1, &[]), []);
    }
    assert_eq!(
        known.registry.counts(&known.table, KeyId(1)).quota_repeated,
        130
    );
}

#[test]
fn late_quota_refusal_leaves_counts_consistent() {
    let mut known = Known::new(2);
    assert_eq!(known.request("acme", 5), 1);
    assert_eq!(
        known.wait(80, &[]),
        [Change::Inserted(1), Change::Released(1)]
    );
    assert_eq!(known.request("globex", 1), 1);
    assert_eq!(known.sync(), [Change::Replaced(1)]);
    // The store answers two requests of acme only now.
    known.table.counters.quotas.add(1, QuotaOutcome::Dropped, 2);
    let counts = known.registry.counts(&known.table, KeyId(1));
    assert!(counts.is_consistent(), "{counts:?}");
    assert_eq!((counts.offered, counts.quota_dropped), (1, 1));
}

#[test]
fn id_outlives_its_unsettled_counts() {
    let mut known = Known::new(2);
    assert_eq!(known.request("acme", 5), 1);
    known.settled = false;
    assert_eq!(known.wait(500, &[]), [Change::Inserted(1)]);
    assert_eq!(
        known.request("globex", 30),
        0,
        "it counts as the default class"
    );
    known.settled = true;
    assert_eq!(known.wait(1, &[]), [Change::Released(1)]);
    assert_eq!(known.request("globex", 30), 1);
}

#[test]
fn pinned_and_active_keys_are_not_evicted() {
    let mut known = Known::new(8);
    known.request("active", 1);
    let pin =
        crate::hot::interner::pin::Pin::new(&known.table, known.bucket.bucket, "pinned").unwrap();
    let again = pin.clone();
    known.request("idle", 1);
    let inserted = [1, 2, 3].map(Change::Inserted);
    assert_eq!(
        known.wait(200, &["active"]),
        [&inserted[..], &[Change::Released(3)]].concat()
    );
    drop(pin);
    assert_eq!(known.wait(200, &["active"]), []);
    drop(again);
    assert_eq!(known.wait(20, &["active"]), [Change::Released(2)]);
}

#[test]
fn key_is_registered_with_its_bucket() {
    let mut known = Known::new(8);
    let other = known.table.declare("other").unwrap().unwrap();
    let bucket = Bucket::new("other").unwrap();
    known.buckets.push(bucket.clone());
    known.table.target(other, "acme");
    assert_eq!(known.sync(), [Change::Inserted(1), Change::Inserted(2)]);
    assert_eq!(
        known.registry.keys()[2],
        Key {
            bucket,
            tenant: Tenant::new("acme").unwrap()
        }
    );
    assert_eq!(known.registry.places()[2], known.table.place_of(2, 1));
}
