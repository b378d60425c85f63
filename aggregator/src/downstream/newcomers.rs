//! Clients that have just subscribed to a bucket and wait for a grant of its tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::InstanceId;

/// For this long after it subscribed, a client may be granted tokens.
const GRANTED_WITHIN: Duration = Duration::from_secs(5);
/// Time until a crowd that joined at the same moment has shown its traffic. Only the first client
/// is granted tokens before.
const CROWD_SHOWS: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    waiting: BTreeMap<InstanceId, Waiting>,
    /// The client that subscribed last, and the time.
    latest: Option<(InstanceId, MonoTime)>,
}

#[derive(Debug)]
struct Waiting {
    /// The times between which tokens may be granted.
    from: MonoTime,
    until: MonoTime,
    buckets: BTreeSet<Bucket>,
}

impl Newcomers {
    pub(crate) fn on_subscription(&mut self, now: MonoTime, client: InstanceId, bucket: &Bucket) {
        let of_crowd = |(other, at)| other != client && now.since(at) < CROWD_SHOWS;
        let is_in_crowd = self.latest.replace((client, now)).is_some_and(of_crowd);
        let from = if is_in_crowd { now + CROWD_SHOWS } else { now };
        let until = now + GRANTED_WITHIN;
        let waiting = self.waiting.entry(client).or_insert(Waiting {
            from,
            until,
            buckets: BTreeSet::new(),
        });
        waiting.until = until;
        waiting.buckets.insert(bucket.clone());
    }

    /// Returns the buckets whose tokens a client may be granted now; `None` if there are none.
    pub(crate) fn buckets_of(
        &mut self,
        now: MonoTime,
        client: InstanceId,
    ) -> Option<&mut BTreeSet<Bucket>> {
        let waiting = self
            .waiting
            .get_mut(&client)
            .filter(|waiting| waiting.from <= now);
        waiting.map(|waiting| &mut waiting.buckets)
    }

    /// Forgets clients that have waited for long enough, that need nothing more, or that have left.
    pub(crate) fn prune(&mut self, now: MonoTime, is_connected: impl Fn(InstanceId) -> bool) {
        self.waiting.retain(|client, waiting| {
            now < waiting.until && !waiting.buckets.is_empty() && is_connected(*client)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    #[test]
    fn client_waits_briefly_for_its_buckets() {
        let (api, other) = (Bucket::new("api").unwrap(), Bucket::new("other").unwrap());
        let client = InstanceId(1);
        // (granted, connected, pruned at, still waits)
        for (granted, connected, ms, waits) in [
            (0, true, 5_999, true),
            (0, true, 6_000, false),
            (0, false, 1_000, false),
            (1, true, 1_000, true),
            (2, true, 1_000, false),
        ] {
            let mut newcomers = Newcomers::default();
            assert!(newcomers.buckets_of(at(0), client).is_none());
            newcomers.on_subscription(at(0), client, &api);
            newcomers.on_subscription(at(1_000), client, &other);
            let buckets = newcomers.buckets_of(at(1_000), client).unwrap();
            [&api, &other]
                .into_iter()
                .take(granted)
                .for_each(|bucket| assert!(buckets.remove(bucket)));
            newcomers.prune(at(ms), |_| connected);
            assert_eq!(
                newcomers.buckets_of(at(ms), client).is_some(),
                waits,
                "{granted} {connected} {ms}"
            );
        }
    }

    #[test]
    fn crowd_waits_after_its_first_client() {
        let api = Bucket::new("api").unwrap();
        let mut newcomers = Newcomers::default();
        // Client, joins at, served from.
        let clients = [
            (1, 0, 0),
            (2, 1, 201),
            (3, 150, 350),
            (4, 350, 350),
            (5, 549, 749),
        ];
        for (client, joins, _) in clients {
            newcomers.on_subscription(at(joins), InstanceId(client), &api);
        }
        for (client, _, from) in clients {
            let mut is_served = |ms| newcomers.buckets_of(at(ms), InstanceId(client)).is_some();
            assert!(
                is_served(from) && (from == 0 || !is_served(from - 1)),
                "{client}"
            );
        }
    }
}
