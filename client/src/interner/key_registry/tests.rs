//! Who enters, leaves and comes back, as the subscription is told.

use std::sync::Arc;

use super::*;
use crate::hot::thread_counters::Outcome;
use crate::hot::table::BucketPlace;

/// A table of one bucket, and its roll.
struct Known {
    table: Arc<Table>,
    roll: Roll,
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
            roll: Roll::default(),
            bucket,
            buckets: vec![Bucket::new("api").unwrap()],
            second: 0,
            settled: true,
        };
        assert_eq!(known.look(), [Change::Entered(0)]);
        known
    }

    fn ask(&self, tenant: &str, times: u64) -> u32 {
        let mut key = 0;
        for _ in 0..times {
            key = self.table.key(self.bucket, tenant).key;
            self.table.slabs.of_thread().add(key, Outcome::Admitted, 1);
        }
        key
    }

    fn look(&mut self) -> Vec<Change> {
        self.roll.look(&self.table, &self.buckets)
    }

    /// Seconds pass, in each of which these tenants are asked for once.
    fn wait(&mut self, seconds: u64, active: &[&str]) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..seconds {
            active.iter().for_each(|tenant| _ = self.ask(tenant, 1));
            self.second += 1;
            changes.extend(self.look());
            let now = MonoTime::from_elapsed(Duration::from_secs(self.second));
            let settled = self.settled;
            changes.extend(self.roll.sweep(now, &self.table, |_| false, |_, _| settled));
        }
        changes
    }

    fn offered(&self, id: u32) -> u64 {
        self.roll.counts(&self.table, KeyId(id)).offered
    }

    fn name(&self, id: u32) -> &str {
        self.roll.keys()[id as usize].tenant.as_str()
    }
}

#[test]
fn a_key_that_is_replaced_takes_nothing_along() {
    let mut known = Known::new(2);
    known.table.publish(1, Word::new(plimsoll_core::quantity::DropRatio::ALL));
    assert_eq!(known.ask("acme", 5), 1);
    // Never asked for again: a minute, and ten seconds of rest.
    assert_eq!(known.wait(80, &[]), [Change::Entered(1), Change::Offered(1)]);
    assert_eq!((known.offered(1), known.name(1)), (5, "acme"), "it is reported still");
    assert_eq!(known.table.directing(KeyPlace { key: 1, default_key: 0 }), (0, Word::NOTHING));
    assert_eq!(known.ask("globex", 3), 1);
    assert_eq!(known.look(), [Change::Replaced(1)]);
    assert_eq!((known.offered(1), known.name(1)), (3, "globex"));
    assert_eq!(known.offered(0), 0);
}

#[test]
fn a_key_that_comes_back_in_time_goes_on_as_it_was() {
    let mut known = Known::new(8);
    for (seconds, changes) in [
        (65, vec![Change::Woke(1)]),
        (80, vec![Change::Offered(1), Change::Woke(1)]),
        (200, vec![Change::Offered(1), Change::Woke(1)]),
    ] {
        let before = known.offered(1);
        assert_eq!(known.ask("acme", 5), 1);
        known.look();
        let mut seen = known.wait(seconds, &[]);
        assert_eq!(known.ask("acme", 1), 1);
        seen.extend(known.look());
        assert_eq!(seen, changes, "after {seconds} s");
        assert_eq!((known.offered(1), known.name(1)), (before + 6, "acme"));
    }
}

#[test]
fn nothing_is_given_to_another_while_counts_are_on_their_way() {
    let mut known = Known::new(2);
    assert_eq!(known.ask("acme", 5), 1);
    known.settled = false;
    assert_eq!(known.wait(500, &[]), [Change::Entered(1)]);
    assert_eq!(known.ask("globex", 30), 0, "it counts as the default class");
    known.settled = true;
    assert_eq!(known.wait(1, &[]), [Change::Offered(1)]);
    assert_eq!(known.ask("globex", 30), 1);
}

#[test]
fn pinned_and_active_keys_stay() {
    let mut known = Known::new(8);
    known.ask("active", 1);
    let pin = crate::interner::pin::Pin::new(&known.table, known.bucket.bucket, "pinned").unwrap();
    let again = pin.clone();
    known.ask("idle", 1);
    let entered = [1, 2, 3].map(Change::Entered);
    assert_eq!(known.wait(200, &["active"]), [&entered[..], &[Change::Offered(3)]].concat());
    drop(pin);
    assert_eq!(known.wait(200, &["active"]), []);
    drop(again);
    assert_eq!(known.wait(20, &["active"]), [Change::Offered(2)]);
}

#[test]
fn a_key_is_taken_up_after_its_bucket() {
    let mut known = Known::new(8);
    let other = known.table.declare("other").unwrap().unwrap();
    known.table.key(other, "acme");
    assert_eq!(known.look(), []);
    known.buckets.push(Bucket::new("other").unwrap());
    assert_eq!(known.look(), [Change::Entered(1), Change::Entered(2)]);
    assert_eq!(known.roll.places()[2], KeyPlace { key: 2, default_key: 1 });
}
