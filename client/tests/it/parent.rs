//! A scripted parent, and a limiter that is connected to it over a real stream.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use plimsoll_client::Limiter;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{
    BucketDirective, Directives, Epoch, KeyDirective, Message, Terms, Values,
};
use plimsoll_core::exchange::{OnRejected, Parent, Rejection, StreamId, StreamRejected};
use plimsoll_core::names::{Bucket, Key, KeyId, Name, Tenant, Zone};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::{Counts, Echo, Identity, InstanceId, Report, Role};
use plimsoll_host::Shared;
use plimsoll_net::Connections;
use plimsoll_proto::driver::parent::ParentService;
use plimsoll_proto::transport;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

const PATIENCE: Duration = Duration::from_secs(60);

/// Room for two buckets of ten thousand tenants.
const KEYS_MAX: usize = 25_000;

pub(crate) const ALL: u32 = DropRatio::ONE;

pub(crate) fn at_ratio(units: u32) -> Values {
    Values {
        ratio: Some(DropRatio::new(units).unwrap()),
        ..Values::default()
    }
}

pub(crate) fn identity() -> Identity {
    Identity {
        instance: InstanceId(1),
        name: Name::new("shop-1").unwrap(),
        service: Name::new("shop").unwrap(),
        zone: Zone::new("a").unwrap(),
        role: Role::Client,
    }
}

pub(crate) struct Fleet {
    pub(crate) limiter: Limiter,
    aggregator: Aggregator,
}

pub(crate) struct Aggregator {
    pub(crate) address: SocketAddr,
    parent: Shared<Scripted>,
    received: watch::Receiver<Received>,
    pub(crate) stop: CancellationToken,
    _stop: DropGuard,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    epoch: Option<Epoch>,
    pub(crate) counts: BTreeMap<Key, Counts>,
}

/// Sends all directives to every stream, whole, with each message.
pub(crate) struct Scripted {
    epoch: Epoch,
    buckets: BTreeMap<Bucket, BucketDirective>,
    streams: HashMap<StreamId, Stream>,
    received: watch::Sender<Received>,
}

#[derive(Default)]
struct Stream {
    seq: u64,
    covered: u64,
    keys: BTreeMap<KeyId, Key>,
}

impl Fleet {
    pub(crate) async fn start(buckets: &[&str]) -> Self {
        let aggregator = Aggregator::start(|service| service).await;
        let address = format!("http://{}", aggregator.address);
        let builder = Limiter::builder("shop")
            .aggregator(&address)
            .keys_max(KEYS_MAX);
        let (limiter, feed) = builder.build_detached().unwrap();
        for bucket in buckets {
            limiter.bucket(bucket).unwrap();
        }
        tokio::spawn(feed.run(aggregator.stop.child_token()));
        aggregator.applied(Epoch(1)).await;
        Self {
            limiter,
            aggregator,
        }
    }
}

impl Deref for Fleet {
    type Target = Aggregator;

    fn deref(&self) -> &Aggregator {
        &self.aggregator
    }
}

impl Aggregator {
    pub(crate) async fn start(
        secure: impl FnOnce(ParentService<Scripted>) -> ParentService<Scripted>,
    ) -> Self {
        let received = watch::Sender::new(Received::default());
        let receiver = received.subscribe();
        let parent = Shared::new(Scripted {
            epoch: Epoch(1),
            buckets: BTreeMap::new(),
            streams: HashMap::new(),
            received,
        });
        let stop = CancellationToken::new();
        let listener = plimsoll_net::listen("--listen", "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let service = secure(ParentService::new(
            parent.clone(),
            stop.clone(),
            IgnoreRejected,
        ));
        tokio::spawn(transport::serve(
            listener,
            Connections::default(),
            service,
            stop.clone().cancelled_owned(),
        ));
        Self {
            address,
            parent,
            received: receiver,
            _stop: stop.clone().drop_guard(),
            stop,
        }
    }

    pub(crate) async fn direct(&self, bucket: &str, mode: Mode, ratios: &[(&'static str, u32)]) {
        let values = ratios
            .iter()
            .map(|(tenant, units)| (*tenant, at_ratio(*units)));
        let terms = Terms {
            mode,
            ..Terms::default()
        };
        self.direct_values(bucket, terms, &values.collect::<Vec<_>>())
            .await;
    }

    pub(crate) async fn direct_values(
        &self,
        bucket: &str,
        terms: Terms,
        values: &[(&str, Values)],
    ) {
        let epoch = self.post(bucket, terms, values);
        self.applied(epoch).await;
    }

    pub(crate) fn post(&self, bucket: &str, terms: Terms, values: &[(&str, Values)]) -> Epoch {
        let directive = BucketDirective {
            bucket: Bucket::new(bucket).unwrap(),
            whole: true,
            terms: Terms {
                limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
                ..terms
            },
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
        epoch
    }

    pub(crate) async fn applied(&self, epoch: Epoch) {
        self.until(|received| received.epoch >= Some(epoch)).await;
    }

    pub(crate) fn offered(&self) -> u64 {
        self.received
            .borrow()
            .counts
            .values()
            .map(|counts| counts.offered)
            .sum()
    }

    pub(crate) async fn until(&self, condition: impl Fn(&Received) -> bool) {
        let mut received = self.received.clone();
        let waited =
            tokio::time::timeout(PATIENCE, received.wait_for(|received| condition(received))).await;
        if waited.is_err() {
            panic!(
                "the parent has not received what the test expects, but {:?}",
                self.received.borrow()
            );
        }
    }
}

impl Parent for Scripted {
    fn on_report(
        &mut self,
        _: MonoTime,
        stream: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected> {
        let stream = self.streams.entry(stream).or_default();
        stream.covered = report.seq;
        stream.keys.extend(
            report
                .definitions
                .into_iter()
                .map(|(id, definition)| (id, definition.key)),
        );
        self.received.send_modify(|received| {
            received.epoch = received
                .epoch
                .max(report.lead.leader.map(|leader| leader.epoch));
            for (id, tally) in report.tallies.iter() {
                received
                    .counts
                    .insert(stream.keys[&id].clone(), tally.counts);
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
            lead: self.epoch.into(),
            seq: stream.seq,
            echo: Echo {
                covered: stream.covered,
                confirmed: stream.covered,
            },
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

/// Ignores rejected streams: a test notices them by missing reports.
#[derive(Debug)]
struct IgnoreRejected;

impl OnRejected for IgnoreRejected {
    fn on_rejected(&self, _: Rejection<'_>) {}
}
