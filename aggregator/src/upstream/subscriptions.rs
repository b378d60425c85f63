//! The buckets that children ask for: which are held, until when, and what of them the parent has yet to be
//! asked for.

use std::collections::BTreeSet;

use plimsoll_core::exchange::{AskedBuckets, Asker, RENEWAL};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

/// The buckets that are held because children ask for them, up to a bound. The buckets that the policy names
/// are not among them: the parent sends those without being asked.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    max: usize,
    asked: AskedBuckets,
    /// Buckets that the policy named on an earlier stream, while no controller has spoken on the present one.
    unconfirmed: BTreeSet<Bucket>,
    /// Buckets that no report of the present stream has asked the parent for yet.
    pending: Vec<Bucket>,
    /// Buckets that were dropped since the last report.
    dropped: Vec<Bucket>,
    renewed: MonoTime,
}

impl Subscriptions {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            asked: AskedBuckets::new(max),
            unconfirmed: BTreeSet::new(),
            pending: Vec::new(),
            dropped: Vec::new(),
            renewed: MonoTime::ZERO,
        }
    }

    /// A new stream to the parent begins: its first report asks for everything that is held, the buckets that
    /// the policy `named` as well. They stay until a controller tells which of them it still names.
    pub(crate) fn open<'a>(&mut self, now: MonoTime, named: impl Iterator<Item = &'a Bucket>) {
        self.unconfirmed = named.cloned().collect();
        self.dropped.clear();
        self.renew(now);
    }

    fn renew(&mut self, now: MonoTime) {
        self.pending = self.iter().cloned().collect();
        self.pending.sort_unstable();
        self.renewed = now;
    }

    /// A controller speaks on the present stream: a bucket that it does not name has one more lease.
    pub(crate) fn on_epoch(&mut self, now: MonoTime) {
        for bucket in std::mem::take(&mut self.unconfirmed) {
            self.asked.keep(now, &bucket);
        }
    }

    /// Returns true if the bucket is held because children ask for it, or the policy named it.
    pub(crate) fn contains(&self, bucket: &Bucket) -> bool {
        self.asked.contains(bucket) || self.unconfirmed.contains(bucket)
    }

    /// The buckets that are held because children ask for them, or the policy named them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.asked.iter().chain(&self.unconfirmed)
    }

    /// The number of buckets that one child may ask for: all that a client can hold, and half of the room for
    /// an aggregator, so that one child never takes all of it.
    pub(crate) const fn max_of(&self, is_client: bool, per_client_max: usize) -> usize {
        if is_client { per_client_max } else { self.asked.half() }
    }

    /// Holds a bucket that a child asks for, for another lease. Returns false if there is no room for it.
    pub(crate) fn ask(&mut self, now: MonoTime, asker: &Asker, places_max: usize, bucket: &Bucket) -> bool {
        let is_new = !self.contains(bucket);
        let has_room = self.asked.ask(now, asker, places_max, bucket);
        if is_new && has_room {
            self.pending.push(bucket.clone());
        }
        has_room
    }

    /// Holds a bucket for a lease although no child asks for it: the parent has sent it.
    pub(crate) fn keep(&mut self, now: MonoTime, bucket: &Bucket) {
        self.asked.keep(now, bucket);
    }

    /// The policy names the bucket: the parent sends it without being asked.
    pub(crate) fn on_named(&mut self, bucket: &Bucket) {
        self.asked.take(bucket);
        self.unconfirmed.remove(bucket);
    }

    /// The buckets that no child has asked for within a lease.
    pub(crate) fn lapsed(&self, now: MonoTime) -> impl Iterator<Item = &Bucket> {
        self.asked.lapsed(now)
    }

    /// Drops buckets. The next report says so.
    pub(crate) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.asked.remove(gone);
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
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::report::{Identity, InstanceId, Role};
    use std::time::Duration;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn ask(subscriptions: &mut Subscriptions, now: MonoTime, name: &str) -> bool {
        let name_of = |name| Name::new(name).unwrap();
        let asker = Asker::from(&Identity {
            instance: InstanceId(1),
            name: name_of("shop-1"),
            service: name_of("shop"),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        });
        subscriptions.ask(now, &asker, 2, &bucket(name))
    }

    fn bucket(name: &str) -> Bucket {
        Bucket::new(name).unwrap()
    }

    #[test]
    fn buckets_are_asked_for_once_per_stream_and_again_at_every_renewal() {
        let mut subscriptions = Subscriptions::new(2);
        assert!(["b", "a", "b"].iter().all(|name| ask(&mut subscriptions, at(0), name)));
        assert!(!ask(&mut subscriptions, at(0), "c"), "there is no room");
        assert_eq!(subscriptions.take(at(1)).0, [bucket("b"), bucket("a")]);
        assert_eq!(subscriptions.take(at(29)).0, []);
        assert_eq!(subscriptions.take(at(30)).0, [bucket("a"), bucket("b")]);
        assert_eq!(subscriptions.take(at(31)).0, []);
        let named = bucket("named");
        subscriptions.open(at(32), [&named].into_iter());
        assert_eq!(subscriptions.take(at(32)).0, [bucket("a"), bucket("b"), named.clone()]);
        subscriptions.on_epoch(at(32));
        subscriptions.on_named(&named);
        subscriptions.open(at(33), std::iter::empty());
        assert_eq!(subscriptions.take(at(33)).0, [bucket("a"), bucket("b")]);
    }

    #[test]
    fn bucket_that_is_asked_for_no_more_lapses_and_is_given_up_once() {
        let mut subscriptions = Subscriptions::new(2);
        ask(&mut subscriptions, at(0), "a");
        ask(&mut subscriptions, at(0), "b");
        ask(&mut subscriptions, at(100), "a");
        assert!(subscriptions.lapsed(at(120)).eq([&bucket("b")]));
        subscriptions.remove(&BTreeSet::from([bucket("b")]));
        assert_eq!(subscriptions.take(at(121)), (vec![bucket("a")], vec![bucket("b")]));
        assert!(ask(&mut subscriptions, at(122), "c"), "its room is free");
        assert_eq!(subscriptions.take(at(122)), (vec![bucket("c")], vec![]));
    }
}
