//! The cost of a report at an aggregator: decoded from bytes, checked and merged into the zone's tables.
//! 1,000 clients report 1,000 keys each, with two changed counts per key.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)] // a failed step ends the benchmark

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key, KeyId, Name, Tenant, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::{Counts, Echo, Identity, InstanceId, Outbox, Report, Role, Tally};
use plimsoll_proto::{ReportDecoder, ReportEncoder, wire};
use prost::Message;

const CLIENTS: usize = 1_000;
const KEYS: usize = 1_000;
const INTERVAL: Duration = Duration::from_millis(500);
const TENANTS_PER_BUCKET: usize = 100;
const DIRECTED: usize = 10;
const AGGREGATOR: InstanceId = InstanceId(1);

fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_secs(2))
        .measurement_time(Duration::from_secs(6));
    group.throughput(Throughput::Elements((CLIENTS * KEYS) as u64));
    for space in [10_000, 1_000_000] {
        let mut fleet = Fleet::new(space);
        println!(
            "{space} keys: {:.2} bytes an entry",
            fleet.bytes_per_entry()
        );
        // A round has a million entries: its milliseconds are the nanoseconds per entry.
        group.bench_function(
            BenchmarkId::new("decode and merge, keys", space),
            |bencher| {
                bencher.iter_custom(|rounds| (0..rounds).map(|_| fleet.round()).sum());
            },
        );
        group.bench_function(BenchmarkId::new("decode alone, keys", space), |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| fleet.decode_round()).sum());
        });
    }
    group.finish();
}

/// CPU time of this thread, so that other load of the machine is not counted. Elapsed time where
/// the system does not report CPU time.
struct Stopwatch {
    began: Instant,
    ran: Option<u64>,
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            ran: Self::ran(),
            began: Instant::now(),
        }
    }

    fn ran() -> Option<u64> {
        // The kernel updates the figure when the thread yields the processor.
        std::thread::sleep(Duration::from_micros(50));
        let figures = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        figures.split_whitespace().next()?.parse().ok()
    }

    fn stop(self) -> Duration {
        let passed = self.began.elapsed();
        let ran = Self::ran()
            .zip(self.ran)
            .map(|(now, then)| Duration::from_nanos(now - then));
        ran.unwrap_or(passed)
    }
}

struct Fleet {
    zone: Zone,
    clients: Vec<Client>,
    now: Duration,
}

struct Client {
    decoder: ReportDecoder,
    /// Report of every round, except for sequence number and time: the deltas do not change.
    next: wire::Report,
    decode_only: ReportDecoder,
}

impl Fleet {
    fn new(space: usize) -> Self {
        let mut zone = Zone::new(
            identity(Role::Aggregator, AGGREGATOR),
            Bounds::default(),
            Parameters::default(),
        );
        direct(&mut zone, space);
        let mut fleet = Self {
            zone,
            clients: Vec::new(),
            now: Duration::from_secs(1),
        };
        fleet.zone.on_tick(MonoTime::from_elapsed(fleet.now));
        let mut state = 7;
        for at in 0..CLIENTS {
            let client = fleet.client(at, space, &mut state);
            fleet.clients.push(client);
        }
        for _ in 0..4 {
            fleet.round();
        }
        fleet
    }

    /// Connects a client, which defines its keys and reports their first counts.
    fn client(&mut self, at: usize, space: usize, state: &mut u64) -> Client {
        let keys: Vec<Key> = (0..KEYS)
            .map(|_| key(draw(state) as usize % space))
            .collect();
        let instance = InstanceId(1_000 + at as u128);
        let (mut encoder, mut outbox) = (ReportEncoder::default(), Outbox::default());
        let (mut decoder, mut decode_only) = (ReportDecoder::default(), ReportDecoder::default());
        outbox.open();
        let mut last = wire::Report::default();
        for step in 0..4_u64 {
            let mut report = Report {
                greeting: (step == 0).then(|| identity(Role::Client, instance)).into(),
                time: Some(MonoTime::from_elapsed(self.now)),
                ..Report::default()
            };
            let counts = Counts {
                offered: step * 100,
                dropped: step * 10,
                ..Counts::ZERO
            };
            outbox.fill(&mut report, &keys, |_: KeyId| Tally {
                counts,
                late: Counts::ZERO,
            });
            outbox.on_answer(AGGREGATOR);
            for part in encoder.encode(&report) {
                last = part.clone();
                decode_only.decode(part.clone()).unwrap();
                if let Some(report) = decoder.decode(part).unwrap() {
                    let now = MonoTime::from_elapsed(self.now);
                    self.zone
                        .on_report(now, StreamId(at as u64), report)
                        .unwrap();
                }
            }
        }
        Client {
            decoder,
            next: last,
            decode_only,
        }
    }

    fn bytes_per_entry(&self) -> f64 {
        let bytes: usize = self
            .clients
            .iter()
            .map(|client| client.next.encoded_len())
            .sum();
        let entries: usize = self
            .clients
            .iter()
            .map(|client| client.next.id_gaps.len())
            .sum();
        assert_eq!(entries, CLIENTS * KEYS);
        bytes as f64 / entries as f64
    }

    fn messages(&mut self) -> Vec<Vec<u8>> {
        let time_us = Some(self.now.as_micros() as u64);
        let next = self.clients.iter_mut().map(|client| {
            client.next.seq += 1;
            client.next.time_us = time_us;
            client.next.encode_to_vec()
        });
        next.collect()
    }

    fn round(&mut self) -> Duration {
        self.now += INTERVAL;
        let now = MonoTime::from_elapsed(self.now);
        let messages = self.messages();
        let began = Stopwatch::start();
        for ((at, bytes), client) in (0..).zip(&messages).zip(&mut self.clients) {
            let part = wire::Report::decode(bytes.as_slice()).unwrap();
            if let Some(report) = client.decoder.decode(part).unwrap() {
                self.zone
                    .on_report(now, StreamId(at), black_box(report))
                    .unwrap();
            }
        }
        let took = began.stop();
        // The second decoder takes the reports as well, so that its sequence numbers stay in step.
        for (bytes, client) in messages.iter().zip(&mut self.clients) {
            client
                .decode_only
                .decode(wire::Report::decode(bytes.as_slice()).unwrap())
                .unwrap();
        }
        self.zone.on_tick(now);
        took
    }

    fn decode_round(&mut self) -> Duration {
        self.now += INTERVAL;
        let messages = self.messages();
        let began = Stopwatch::start();
        for (bytes, client) in messages.iter().zip(&mut self.clients) {
            let part = wire::Report::decode(bytes.as_slice()).unwrap();
            black_box(client.decode_only.decode(part).unwrap());
        }
        let took = began.stop();
        let now = MonoTime::from_elapsed(self.now);
        for ((at, bytes), client) in (0..).zip(&messages).zip(&mut self.clients) {
            let part = wire::Report::decode(bytes.as_slice()).unwrap();
            if let Some(report) = client.decoder.decode(part).unwrap() {
                self.zone.on_report(now, StreamId(at), report).unwrap();
            }
        }
        took
    }
}

/// Sends the zone a limit for every bucket, and rates for its first tenants and the class
/// `default`.
fn direct(zone: &mut Zone, space: usize) {
    zone.on_open(MonoTime::ZERO);
    let greeting = zone.report(MonoTime::ZERO);
    let rate = |rate: f64| Rate::new(rate).ok();
    let values = Values {
        rate: rate(1e4),
        cap: rate(1e4),
        ..Values::default()
    };
    let terms = Terms {
        limit: Limit::PerSecond(rate(1e6).unwrap()),
        mode: Mode::Enforce,
        ..Terms::default()
    };
    let buckets = (0..space / TENANTS_PER_BUCKET).map(|bucket| {
        let own = (0..DIRECTED).map(|tenant| key(bucket * TENANTS_PER_BUCKET + tenant).tenant);
        let mut tenants: Vec<Tenant> = own.chain([Tenant::default_class()]).collect();
        tenants.sort_unstable();
        BucketDirective {
            bucket: key(bucket * TENANTS_PER_BUCKET).bucket,
            whole: true,
            terms: terms.clone(),
            keys: tenants
                .into_iter()
                .map(|tenant| KeyDirective { tenant, values })
                .collect(),
        }
    });
    let message = Directives {
        lead: Epoch(1).into(),
        seq: 1,
        echo: Echo {
            covered: greeting.seq,
            confirmed: greeting.seq,
        },
        parent: Some(InstanceId(2)),
        buckets: buckets.collect(),
        ..Directives::default()
    };
    zone.on_directives(MonoTime::ZERO, message).unwrap();
}

fn key(number: usize) -> Key {
    Key {
        bucket: Bucket::new(&format!("bucket-{}", number / TENANTS_PER_BUCKET)).unwrap(),
        tenant: Tenant::new(&format!("tenant-{number}")).unwrap(),
    }
}

fn identity(role: Role, instance: InstanceId) -> Identity {
    Identity {
        instance,
        name: Name::new(&format!("host:{}", instance.0)).unwrap(),
        service: Name::new("bench").unwrap(),
        zone: ZoneName::new("a").unwrap(),
        role,
    }
}

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

criterion_group!(benches, merge);
criterion_main!(benches);
