//! The buckets that children subscribe to, and the part of them that the parent has yet to be asked for.

use std::collections::BTreeSet;

use plimsoll_core::names::Bucket;

/// The buckets requested by children, up to a bound.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    /// Also the maximum of one child.
    pub(crate) buckets_max: usize,
    requested: BTreeSet<Bucket>,
    /// Buckets that no report of the present stream has asked the parent for yet.
    pending: Vec<Bucket>,
}

impl Subscriptions {
    pub(crate) const fn new(buckets_max: usize) -> Self {
        Self { buckets_max, requested: BTreeSet::new(), pending: Vec::new() }
    }

    /// A new stream to the parent begins: its first report asks for everything.
    pub(crate) fn open(&mut self) {
        self.pending = self.requested.iter().cloned().collect();
    }

    /// Returns true if a child has requested the bucket.
    pub(crate) fn contains(&self, bucket: &Bucket) -> bool {
        self.requested.contains(bucket)
    }

    /// The buckets that children have requested.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.requested.iter()
    }

    /// Returns true if there is no room for another bucket.
    pub(crate) fn is_full(&self) -> bool {
        self.requested.len() >= self.buckets_max
    }

    /// Adds a bucket. Returns true if it is new.
    pub(crate) fn add(&mut self, bucket: &Bucket) -> bool {
        let is_new = self.requested.insert(bucket.clone());
        if is_new {
            self.pending.push(bucket.clone());
        }
        is_new
    }

    /// Takes the buckets that the next report asks for.
    pub(crate) fn take_pending(&mut self) -> Vec<Bucket> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_is_asked_for_once_per_stream() {
        let bucket = |name: &str| Bucket::new(name).unwrap();
        let mut subscriptions = Subscriptions::new(2);
        assert!(subscriptions.add(&bucket("b")) && !subscriptions.add(&bucket("b")));
        assert!(!subscriptions.is_full());
        assert!(subscriptions.add(&bucket("a")));
        assert!(subscriptions.is_full() && subscriptions.contains(&bucket("a")));
        assert_eq!(subscriptions.take_pending(), [bucket("b"), bucket("a")]);
        assert_eq!(subscriptions.take_pending(), []);
        subscriptions.open();
        assert_eq!(subscriptions.take_pending(), [bucket("a"), bucket("b")]);
    }
}
