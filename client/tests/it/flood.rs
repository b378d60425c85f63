//! A flood of ten million unknown tenants, with a few frequent ones among them.

use std::collections::BTreeMap;
use std::time::Duration;

use allocation_counter::measure;
use plimsoll_client::internals::Subscription;
use plimsoll_client::{Limiter, Request};
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};

use crate::parent::{at_ratio, identity};

const UNKNOWN: u64 = 10_000_000;
/// One request in this many is from a hot tenant.
const HOT_SHARE: u64 = 20;
/// Reports are made every 100 ms: a million unknown tenants a second.
const PER_REPORT: u64 = 100_000;
const KEYS_MAX: usize = 10_000;
const THREADS: usize = 4;
/// The documented memory of a key: in the table, and in addition for a reported key.
const BYTES_PER_KEY: u64 = 129 + 4 + 56 * (THREADS as u64 + 1);
const BYTES_PER_REPORTED_KEY: u64 = 1_000;

/// The drop ratio of each hot tenant, in percent.
const HOT: [u32; 8] = [5, 10, 25, 40, 50, 75, 90, 99];

fn values(percent: u32) -> Values {
    at_ratio((u64::from(DropRatio::ONE) * u64::from(percent) / 100) as u32)
}

fn hot_tenant(percent: u32) -> String {
    format!("hot_{percent:02}")
}

fn now(report: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(1_000 + 100 * report))
}

fn direct(subscription: &mut Subscription) {
    let hot = HOT
        .iter()
        .map(|percent| (hot_tenant(*percent), values(*percent)));
    let keys = hot.chain([("default".to_owned(), values(10))]);
    let keys = keys.map(|(tenant, values)| KeyDirective {
        tenant: Tenant::new(&tenant).unwrap(),
        values,
    });
    let limit = Limit::PerSecond(Rate::new(1_000.0).unwrap());
    let directive = BucketDirective {
        bucket: Bucket::new("api").unwrap(),
        whole: true,
        terms: Terms {
            limit,
            mode: Mode::Enforce,
            ..Terms::default()
        },
        keys: keys.collect(),
    };
    let message = Directives {
        lead: Epoch(1).into(),
        seq: 1,
        buckets: vec![directive],
        ..Directives::default()
    };
    subscription.on_open(now(0));
    subscription.report(now(0));
    subscription.on_directives(now(0), message).unwrap();
}

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    sent: u64,
    refused: u64,
}

impl Requests {
    fn send(&mut self, limiter: &Limiter, request: &Request<'_>) {
        self.sent += 1;
        self.refused += u64::from(!limiter.check(request).is_admit());
    }
}

fn invent(number: u64, name: &mut [u8; 24]) -> &str {
    let mut mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in name.iter_mut().skip(4) {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        *byte = b'a' + (mixed >> 32) as u8 % 26;
    }
    std::str::from_utf8(name).unwrap()
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or_default()
        * 4_096
}

#[test]
fn unknown_tenant_flood_spares_frequent_ones() {
    let before = resident();
    let mut limiter = None;
    let made =
        measure(|| limiter = Some(Limiter::without_transport(identity(), KEYS_MAX, THREADS, 7)));
    let (limiter, mut subscription) = limiter.unwrap();
    // Buckets, their headroom and the table itself take memory in addition to the keys.
    let cap = KEYS_MAX as u64 * BYTES_PER_KEY + 2 * 1_024 * BYTES_PER_KEY + 4_096;
    assert!(
        made.bytes_current.unsigned_abs() <= cap,
        "{} of {cap} bytes",
        made.bytes_current
    );

    let bucket = limiter.bucket("api").unwrap();
    direct(&mut subscription);
    let hot = HOT.map(hot_tenant);
    let (mut requests, mut late) = ([Requests::default(); HOT.len()], Requests::default());
    let (mut name, mut unknown) = (*b"inv-0123456789abcdefghij", Requests::default());
    let (mut allocations, mut reported) = (0, 0);
    for report in 1..=UNKNOWN / PER_REPORT {
        let decided = measure(|| {
            for number in (report - 1) * PER_REPORT..report * PER_REPORT {
                unknown.send(&limiter, &Request::new(&bucket, invent(number, &mut name)));
                if number % HOT_SHARE == 0 {
                    let at = (number / HOT_SHARE) as usize % hot.len();
                    requests[at].send(&limiter, &Request::new(&bucket, &hot[at]));
                }
                // One tenant becomes hot in the middle of the flood.
                if number > UNKNOWN / 2 && number % 1_000 == 0 {
                    late.send(&limiter, &Request::new(&bucket, "latecomer"));
                }
            }
        });
        allocations += decided.count_total;
        reported += measure(|| drop(subscription.report(now(report)))).bytes_current;
    }
    assert_eq!(allocations, 0, "no decision allocates");
    assert!(
        reported.unsigned_abs() <= KEYS_MAX as u64 * BYTES_PER_REPORTED_KEY,
        "{reported} bytes"
    );
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for {UNKNOWN} names");

    let counts: BTreeMap<Key, _> = subscription.counts();
    assert!(counts.len() <= KEYS_MAX);
    let offered = |tenant: &str| {
        let key = Key {
            bucket: Bucket::new("api").unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        };
        counts.get(&key).map_or(0, |counts| counts.offered)
    };
    for ((percent, tenant), requests) in HOT.iter().zip(&hot).zip(&requests) {
        let share = requests.refused as f64 / requests.sent as f64;
        let ratio = f64::from(*percent) / 100.0;
        assert!(
            (share - ratio).abs() < 0.01,
            "{tenant}: {share} of {} refused",
            requests.sent
        );
        assert_eq!(
            offered(tenant),
            requests.sent,
            "{tenant} had an id of its own all the time"
        );
    }
    let missed = late.sent - offered("latecomer");
    assert!(
        late.sent > 4_000 && missed < 16,
        "{missed} of {} without an id",
        late.sent
    );
    let share = unknown.refused as f64 / unknown.sent as f64;
    assert!(
        (share - 0.1).abs() < 0.01,
        "{share} of the unknown refused, by the ratio of the default class"
    );
    let all: u64 = counts.values().map(|counts| counts.offered).sum();
    assert_eq!(
        all,
        unknown.sent + late.sent + requests.iter().map(|requests| requests.sent).sum::<u64>()
    );
}
