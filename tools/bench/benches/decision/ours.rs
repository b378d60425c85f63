//! The decisions of this crate, by every kind of handle and directive.

use plimsoll_client::internals::{KeyHandle, Subscription};
use plimsoll_client::{BucketHandle, Limiter, Request};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::{Identity, InstanceId, Role};

use crate::rounds::{Candidate, spin};

/// Measured buckets: drop ratio, coin, and true for a guard.
const BUCKETS: [(&str, f64, Coin, bool); 5] = [
    ("open", 0.0, Coin::Dithered, false),
    ("independent", 0.5, Coin::Coherent, false),
    ("dithered", 0.5, Coin::Dithered, false),
    ("guarded", 0.5, Coin::Dithered, true),
    ("guard alone", 0.0, Coin::Dithered, true),
];

/// A limiter for each measured bucket: the names of the others would take space in the caches.
pub(crate) struct Ours(Vec<Measured>);

struct Measured {
    limiter: Limiter,
    bucket: BucketHandle,
    keys: Vec<KeyHandle>,
}

fn name(of: &str) -> String {
    of.replace(' ', "-")
}

fn direct(
    subscription: &mut Subscription,
    (bucket, ratio, coin, guarded): &(&str, f64, Coin, bool),
) {
    let rate = |rate: f64| Rate::new(rate).unwrap();
    let directive = BucketDirective {
        bucket: Bucket::new(&name(bucket)).unwrap(),
        whole: true,
        terms: Terms {
            limit: Limit::PerSecond(rate(1000.0)),
            mode: Mode::Enforce,
            coin: *coin,
            clients: Some(1),
            ..Terms::default()
        },
        keys: vec![KeyDirective {
            tenant: Tenant::default_class(),
            values: Values {
                ratio: Some(DropRatio::new((ratio * f64::from(DropRatio::ONE)) as u32).unwrap()),
                // More than any thread can use: the measured guard always admits.
                guard: guarded.then(|| rate(1e12)),
                ..Values::default()
            },
        }],
    };
    let message = Directives {
        lead: Epoch(1).into(),
        seq: 1,
        buckets: vec![directive],
        ..Directives::default()
    };
    subscription.on_directives(MonoTime::ZERO, message).unwrap();
}

impl Measured {
    fn new(which: usize, tenants: &[String]) -> Self {
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("bench-1").unwrap(),
            service: Name::new("bench").unwrap(),
            zone: Zone::new("zone").unwrap(),
            role: Role::Client,
        };
        // Twice as many as there are, so that a tenant gets a place with its first request.
        let keys_max = (tenants.len() + 1) * 2;
        let (limiter, mut subscription) = Limiter::without_transport(identity, keys_max, 4, 7);
        let measured = &BUCKETS[which];
        let bucket = limiter.bucket(&name(measured.0)).unwrap();
        subscription.on_open(MonoTime::ZERO);
        subscription.report(MonoTime::ZERO);
        direct(&mut subscription, measured);
        let keys = tenants.iter().map(|tenant| bucket.key(tenant)).collect();
        Self {
            limiter,
            bucket,
            keys,
        }
    }
}

impl Ours {
    pub(crate) fn new(tenants: &[String]) -> Self {
        Self(
            (0..BUCKETS.len())
                .map(|which| Measured::new(which, tenants))
                .collect(),
        )
    }

    pub(crate) fn guarded(&self) -> &Limiter {
        &self.0[4].limiter
    }

    /// Returns the candidates with a target, and others that show the cost of their parts.
    pub(crate) fn all<'a>(&'a self, tenants: &'a [String]) -> Vec<Candidate<'a>> {
        let by_handle = |which: usize, name| {
            let Measured { limiter, keys, .. } = &self.0[which];
            Candidate {
                name,
                spin: spin(move |at| limiter.check(&keys[at].request()).is_admit()),
            }
        };
        let by_tenant = |which: usize, name| {
            let Measured {
                limiter, bucket, ..
            } = &self.0[which];
            Candidate {
                name,
                spin: spin(move |at| {
                    limiter
                        .check(&Request::new(bucket, &tenants[at]))
                        .is_admit()
                }),
            }
        };
        let by_names = &self.0[3].limiter;
        vec![
            by_handle(0, "by handle, nothing to refuse"),
            by_handle(1, "by handle, independent coin"),
            by_handle(2, "by handle, dithered coin"),
            by_handle(4, "by handle, guard"),
            by_handle(3, "by handle, dithered coin and guard"),
            by_tenant(1, "by bucket and tenant, independent coin"),
            by_tenant(3, "by bucket and tenant, dithered coin and guard"),
            Candidate {
                name: "by names, dithered coin and guard",
                spin: spin(move |at| {
                    by_names
                        .check(&Request::new("guarded", &tenants[at]))
                        .is_admit()
                }),
            },
        ]
    }
}
