//! The buckets that children ask for: which of them are held and when they were last used, and which this
//! aggregator has yet to ask its parent for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::SubscriptionChanges;

/// The buckets that are held because children ask for them, up to a bound. The buckets that the policy names
/// are not among them: the parent sends those without being asked.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    max: usize,
    /// The time when a child was last subscribed to each, or when it was held for another reason.
    held: BTreeMap<Bucket, MonoTime>,
    /// Buckets that the policy named before the present stream, until a controller answers on it.
    unconfirmed: BTreeSet<Bucket>,
    /// The subscriptions in the next report.
    changes: SubscriptionChanges,
}

impl Subscriptions {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// A new stream to the parent begins: its first report asks for everything that is held, the
    /// buckets that the policy `named` as well. They stay until a controller shows which of them it
    /// still names.
    pub(crate) fn open<'a>(&mut self, named: impl Iterator<Item = &'a Bucket>) {
        self.unconfirmed = named.cloned().collect();
        self.changes.ended.clear();
        self.ask_again();
    }

    /// The next report asks for everything that is held: a new policy may cover what the one before did not.
    pub(crate) fn ask_again(&mut self) {
        self.changes.added = self.iter().cloned().collect();
        self.changes.added.sort_unstable();
    }

    /// A controller answers on the present stream: a bucket that it does not name is held like any
    /// other.
    pub(crate) fn on_epoch(&mut self, now: MonoTime) {
        for bucket in std::mem::take(&mut self.unconfirmed) {
            self.keep(now, &bucket);
        }
    }

    pub(crate) fn contains(&self, bucket: &Bucket) -> bool {
        self.held.contains_key(bucket) || self.unconfirmed.contains(bucket)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.held.keys().chain(&self.unconfirmed)
    }

    /// The number of buckets that one child may ask for: all that a client can hold, and half of the room for
    /// an aggregator, so that one child never takes all of it.
    pub(crate) const fn max_of(&self, is_client: bool, per_client_max: usize) -> usize {
        if is_client {
            per_client_max
        } else {
            self.max.div_ceil(2)
        }
    }

    /// Holds a bucket that a child asks for. Returns false if there is no room for it.
    pub(crate) fn ask(&mut self, now: MonoTime, bucket: &Bucket) -> bool {
        if let Some(at) = self.held.get_mut(bucket) {
            *at = now;
            return true;
        }
        let has_room = !self.is_full();
        if has_room {
            if !self.unconfirmed.contains(bucket) {
                self.changes.added.push(bucket.clone());
            }
            self.held.insert(bucket.clone(), now);
        }
        has_room
    }

    /// Holds a bucket although no child asks for it: the parent has sent it.
    pub(crate) fn keep(&mut self, now: MonoTime, bucket: &Bucket) {
        self.held.entry(bucket.clone()).or_insert(now);
    }

    pub(crate) fn on_use(&mut self, now: MonoTime, bucket: &Bucket) {
        if let Some(at) = self.held.get_mut(bucket) {
            *at = now;
        }
    }

    /// The policy names the bucket: the parent sends it without being asked.
    pub(crate) fn on_named(&mut self, bucket: &Bucket) {
        self.held.remove(bucket);
        self.unconfirmed.remove(bucket);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.max
    }

    /// Returns the held buckets that were not used for `time`, nor just now.
    pub(crate) fn unused(&self, now: MonoTime, time: Duration) -> impl Iterator<Item = &Bucket> {
        self.held
            .iter()
            .filter(move |(_, at)| **at != now && now.since(**at) >= time)
            .map(|(bucket, _)| bucket)
    }

    pub(crate) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.held.retain(|bucket, _| !gone.contains(bucket));
        self.changes.added.retain(|bucket| !gone.contains(bucket));
        // Without a stream they need not be remembered: the next one begins with what is held then.
        let ended = &mut self.changes.ended;
        let room = self.max.saturating_sub(ended.len());
        ended.extend(gone.iter().take(room).cloned());
    }

    /// Takes the buckets that the next report asks for, and the buckets that it gives up.
    pub(crate) fn take(&mut self) -> SubscriptionChanges {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn bucket(name: &str) -> Bucket {
        Bucket::new(name).unwrap()
    }

    #[test]
    fn buckets_are_requested_once_per_policy() {
        let mut subscriptions = Subscriptions::new(2);
        assert!(
            ["b", "a", "b"]
                .iter()
                .all(|name| subscriptions.ask(at(0), &bucket(name)))
        );
        assert!(!subscriptions.ask(at(0), &bucket("c")), "there is no room");
        assert_eq!(subscriptions.take().added, [bucket("b"), bucket("a")]);
        assert_eq!(subscriptions.take().added, []);
        subscriptions.ask_again();
        assert_eq!(subscriptions.take().added, [bucket("a"), bucket("b")]);
        let named = bucket("named");
        subscriptions.open([&named].into_iter());
        assert_eq!(
            subscriptions.take().added,
            [bucket("a"), bucket("b"), named.clone()]
        );
        subscriptions.on_epoch(at(32));
        subscriptions.on_named(&named);
        subscriptions.open(std::iter::empty());
        assert_eq!(subscriptions.take().added, [bucket("a"), bucket("b")]);
    }

    #[test]
    fn unused_bucket_is_given_up_once() {
        let mut subscriptions = Subscriptions::new(2);
        ["a", "b"]
            .iter()
            .for_each(|name| assert!(subscriptions.ask(at(0), &bucket(name))));
        subscriptions.on_use(at(100), &bucket("a"));
        assert!(
            subscriptions
                .unused(at(120), Duration::from_secs(120))
                .eq([&bucket("b")])
        );
        subscriptions.remove(&BTreeSet::from([bucket("b")]));
        let SubscriptionChanges { added, ended } = subscriptions.take();
        assert_eq!((added, ended), (vec![bucket("a")], vec![bucket("b")]));
        assert!(subscriptions.ask(at(122), &bucket("c")), "its room is free");
        assert_eq!(subscriptions.take(), vec![bucket("c")].into());
    }
}
