//! The buckets that children ask for: which are held, until when, and what of them the parent has yet to be
//! asked for.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::exchange::{LEASE, RENEWAL};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

/// The buckets that are held because children ask for them, up to a bound. The buckets that the policy names
/// are not among them: the parent sends those without being asked.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    max: usize,
    /// The time at which each was last asked for.
    asked: BTreeMap<Bucket, MonoTime>,
    /// Buckets that no report of the present stream has asked the parent for yet.
    pending: Vec<Bucket>,
    /// Buckets that were dropped since the last report.
    dropped: Vec<Bucket>,
    renewed: MonoTime,
}

impl Subscriptions {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            max,
            asked: BTreeMap::new(),
            pending: Vec::new(),
            dropped: Vec::new(),
            renewed: MonoTime::ZERO,
        }
    }

    /// A new stream to the parent begins: its first report asks for everything that is `held`. The parent
    /// tells which of it the policy still names.
    pub(crate) fn open<'a>(&mut self, now: MonoTime, held: impl Iterator<Item = &'a Bucket>) {
        held.for_each(|bucket| self.keep(now, bucket));
        self.dropped.clear();
        self.renew(now);
    }

    fn renew(&mut self, now: MonoTime) {
        self.pending = self.asked.keys().cloned().collect();
        self.renewed = now;
    }

    /// Returns true if the bucket is held because children ask for it.
    pub(crate) fn contains(&self, bucket: &Bucket) -> bool {
        self.asked.contains_key(bucket)
    }

    /// The buckets that are held because children ask for them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.asked.keys()
    }

    /// The number of buckets that one child may ask for: all that a client can hold, and half of the room for
    /// an aggregator, so that one child never takes all of it.
    pub(crate) fn max_of(&self, is_client: bool, per_client_max: usize) -> usize {
        if is_client { per_client_max } else { self.max.div_ceil(2) }
    }

    /// Holds a bucket that a child asks for, for another lease. Returns false if there is no room for it.
    pub(crate) fn ask(&mut self, now: MonoTime, bucket: &Bucket) -> bool {
        if let Some(at) = self.asked.get_mut(bucket) {
            *at = now;
            return true;
        }
        if self.asked.len() >= self.max {
            return false;
        }
        self.asked.insert(bucket.clone(), now);
        self.pending.push(bucket.clone());
        true
    }

    /// Holds a bucket for a lease although no child asks for it: the parent has sent it.
    pub(crate) fn keep(&mut self, now: MonoTime, bucket: &Bucket) {
        self.asked.entry(bucket.clone()).or_insert(now);
    }

    /// The policy names the bucket: the parent sends it without being asked.
    pub(crate) fn on_named(&mut self, bucket: &Bucket) {
        self.asked.remove(bucket);
    }

    /// The buckets that no child has asked for within a lease.
    pub(crate) fn lapsed(&self, now: MonoTime) -> impl Iterator<Item = &Bucket> {
        self.asked.iter().filter(move |(_, at)| now.since(**at) >= LEASE).map(|(bucket, _)| bucket)
    }

    /// Drops buckets. The next report says so.
    pub(crate) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.asked.retain(|bucket, _| !gone.contains(bucket));
        self.pending.retain(|bucket| !gone.contains(bucket));
        // Without a stream they need not be remembered: the next one begins with what is held then.
        let room = self.max.saturating_sub(self.dropped.len());
        self.dropped.extend(gone.iter().take(room).cloned());
    }

    /// Takes the buckets that the next report asks for, and those that it gives up.
    pub(crate) fn take(&mut self, now: MonoTime) -> (Vec<Bucket>, Vec<Bucket>) {
        if now.since(self.renewed) >= RENEWAL {
            self.renew(now);
        }
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn bucket(name: &str) -> Bucket {
        Bucket::new(name).unwrap()
    }

    #[test]
    fn buckets_are_asked_for_once_per_stream_and_again_at_every_renewal() {
        let mut subscriptions = Subscriptions::new(2);
        assert!(["b", "a", "b"].iter().all(|name| subscriptions.ask(at(0), &bucket(name))));
        assert!(!subscriptions.ask(at(0), &bucket("c")), "there is no room");
        assert_eq!(subscriptions.take(at(1)).0, [bucket("b"), bucket("a")]);
        assert_eq!(subscriptions.take(at(29)).0, []);
        assert_eq!(subscriptions.take(at(30)).0, [bucket("a"), bucket("b")]);
        assert_eq!(subscriptions.take(at(31)).0, []);
        let named = bucket("named");
        subscriptions.open(at(32), [&named].into_iter());
        assert_eq!(subscriptions.take(at(32)).0, [bucket("a"), bucket("b"), named.clone()]);
        subscriptions.on_named(&named);
        subscriptions.open(at(33), std::iter::empty());
        assert_eq!(subscriptions.take(at(33)).0, [bucket("a"), bucket("b")]);
    }

    #[test]
    fn bucket_that_is_asked_for_no_more_lapses_and_is_given_up_once() {
        let mut subscriptions = Subscriptions::new(2);
        subscriptions.ask(at(0), &bucket("a"));
        subscriptions.ask(at(0), &bucket("b"));
        subscriptions.ask(at(100), &bucket("a"));
        assert!(subscriptions.lapsed(at(120)).eq([&bucket("b")]));
        subscriptions.remove(&BTreeSet::from([bucket("b")]));
        assert_eq!(subscriptions.take(at(121)), (vec![bucket("a")], vec![bucket("b")]));
        assert!(subscriptions.ask(at(122), &bucket("c")), "its room is free");
        assert_eq!(subscriptions.take(at(122)), (vec![bucket("c")], vec![]));
    }
}
