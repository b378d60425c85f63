//! A parent that directs what a test tells it to, and a limiter that hears it over a real stream.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use plimsoll_client::Limiter;
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Message, Terms, Values};
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::report::{Counts, Echo, InstanceId, Report};
use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::driver::parent::{OnRejected, ParentService};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Far beyond what any step takes: a test that gets here has failed, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Room for two buckets of ten thousand tenants.
const KEYS_MAX: usize = 25_000;

pub(crate) const HALF: u32 = DropRatio::ONE / 2;
pub(crate) const ALL: u32 = DropRatio::ONE;

/// A limiter, and the parent it listens to.
pub(crate) struct Fleet {
    pub(crate) limiter: Limiter,
    parent: Shared<Scripted>,
    heard: watch::Receiver<Heard>,
    _stop: DropGuard,
}

/// What the parent was told.
#[derive(Clone, Debug, Default)]
struct Heard {
    epoch: Option<Epoch>,
    counts: BTreeMap<Key, Counts>,
}

/// Directs the same to every stream, whole, each time it is asked.
struct Scripted {
    epoch: Epoch,
    buckets: BTreeMap<Bucket, BucketDirective>,
    streams: HashMap<StreamId, Stream>,
    heard: watch::Sender<Heard>,
}

#[derive(Default)]
struct Stream {
    seq: u64,
    covered: u64,
    keys: BTreeMap<KeyId, Key>,
}

impl Fleet {
    /// A limiter that has declared `buckets` and is connected to its parent.
    pub(crate) async fn start(buckets: &[&str]) -> Self {
        let heard = watch::Sender::new(Heard::default());
        let receiver = heard.subscribe();
        let parent = Shared::new(Scripted {
            epoch: Epoch(1),
            buckets: BTreeMap::new(),
            streams: HashMap::new(),
            heard,
        });
        let stop = CancellationToken::new();
        let listener = transport::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service = ParentService::new(parent.clone(), stop.clone(), Unwatched);
        tokio::spawn(transport::serve(listener, service, stop.clone().cancelled_owned()));

        let settings = Limiter::builder("shop").unwrap().aggregator(&address).unwrap().keys_max(KEYS_MAX);
        let (limiter, feed) = settings.build().unwrap();
        for bucket in buckets {
            limiter.bucket(bucket).unwrap();
        }
        feed.spawn(stop.clone());
        let fleet = Self { limiter, parent, heard: receiver, _stop: stop.drop_guard() };
        fleet.applied(Epoch(1)).await;
        fleet
    }

    /// Directs ratios and returns once the limiter has applied them. They are in units of [`ALL`], by tenant.
    pub(crate) async fn direct(&self, bucket: &str, mode: Mode, ratios: &[(&'static str, u32)]) {
        let value = |(tenant, units): &(&'static str, u32)| {
            (*tenant, Values { ratio: Some(DropRatio::new(*units).unwrap()), ..Values::default() })
        };
        let values: Vec<_> = ratios.iter().map(value).collect();
        self.direct_values(bucket, Terms { mode, ..Terms::default() }, &values).await;
    }

    /// Directs `bucket` and returns once the limiter has applied it. The limit is set here.
    pub(crate) async fn direct_values(&self, bucket: &str, terms: Terms, values: &[(&str, Values)]) {
        let directive = BucketDirective {
            bucket: Bucket::new(bucket).unwrap(),
            whole: true,
            terms: Terms { limit: Limit::PerSecond(Rate::new(100.0).unwrap()), ..terms },
            keys: values
                .iter()
                .map(|(tenant, values)| KeyDirective {
                    tenant: Tenant::new(tenant).unwrap(),
                    values: *values,
                })
                .collect(),
        };
        let epoch = self.parent.with(|parent, _| {
            parent.buckets.insert(directive.bucket.clone(), directive);
            parent.epoch.0 += 1;
            parent.epoch
        });
        self.parent.notify();
        self.applied(epoch).await;
    }

    async fn applied(&self, epoch: Epoch) {
        self.until(|heard| heard.epoch >= Some(epoch)).await;
    }

    /// Returns once the parent was told exactly this of a key.
    pub(crate) async fn counted(&self, bucket: &str, tenant: &str, expected: Counts) {
        let key = Key { bucket: Bucket::new(bucket).unwrap(), tenant: Tenant::new(tenant).unwrap() };
        self.until(|heard| heard.counts.get(&key).copied().unwrap_or_default() == expected).await;
    }

    /// Everything the parent was told was offered, to any bucket.
    pub(crate) fn offered(&self) -> u64 {
        self.heard.borrow().counts.values().map(|counts| counts.offered).sum()
    }

    async fn until(&self, condition: impl Fn(&Heard) -> bool) {
        let mut heard = self.heard.clone();
        let waited = tokio::time::timeout(PATIENCE, heard.wait_for(|heard| condition(heard))).await;
        if waited.is_err() {
            panic!("the parent never heard what it should, but {:?}", self.heard.borrow());
        }
    }
}

impl Parent for Scripted {
    fn on_report(&mut self, _: MonoTime, stream: StreamId, report: Report) -> Result<bool, StreamRejected> {
        let stream = self.streams.entry(stream).or_default();
        stream.covered = report.seq;
        stream.keys.extend(report.definitions.into_iter().map(|(id, definition)| (id, definition.key)));
        self.heard.send_modify(|heard| {
            heard.epoch = heard.epoch.max(report.epoch);
            for (id, tally) in report.tallies.iter() {
                heard.counts.insert(stream.keys[&id].clone(), tally.counts);
            }
        });
        Ok(false)
    }

    fn on_close(&mut self, _: MonoTime, stream: StreamId) {
        self.streams.remove(&stream);
    }

    fn message(&mut self, _: MonoTime, stream: StreamId) -> Option<Message> {
        let stream = self.streams.entry(stream).or_default();
        stream.seq += 1;
        let directives = Directives {
            epoch: Some(self.epoch),
            seq: stream.seq,
            echo: Echo { covered: stream.covered, confirmed: stream.covered },
            report_interval: Some(Duration::from_millis(10)),
            buckets: self.buckets.values().cloned().collect(),
            parent: Some(InstanceId(1)),
            ..Directives::default()
        };
        Some(directives.into())
    }

    fn is_superseded(&self, _: StreamId) -> bool {
        false
    }
}

/// A stream that was refused shows in what the parent never hears.
#[derive(Debug)]
struct Unwatched;

impl OnRejected for Unwatched {
    fn on_rejected(&self, _: &'static str) {}
}
