//! A tenant limit holds for undeclared tenants, which a zone and the controller detect by their traffic among
//! a million others.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_aggregator::zone::Bounds;
use plimsoll_core::directive::Board;
use plimsoll_core::exchange::{Parent, StreamId};
use plimsoll_core::law::tail::Standing;
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Identity, InstanceId, Outbox, Report, Role, Tally};

use super::pair::{AGGREGATOR, Pair, identity};

/// Other tenants, with one to three requests each.
const OTHERS: usize = 1_000_000;
/// Maximum number of tenants with a key on one client's stream, before their ids are reused.
const PER_CLIENT: usize = 50_000;
const TENANT_LIMIT: f64 = 100.0;
const HOT_RPS: u64 = 4_000;

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

/// A client with scripted counts.
struct Client {
    stream: StreamId,
    identity: Option<Identity>,
    outbox: Outbox,
    keys: Vec<Key>,
    counts: Vec<u64>,
    board: Board,
    standings: BTreeMap<KeyId, Standing>,
}

impl Client {
    fn new(number: u64) -> Self {
        let mut outbox = Outbox::default();
        outbox.open();
        Self {
            stream: StreamId(number),
            identity: Some(identity(Role::Client, 1_000 + u128::from(number))),
            outbox,
            keys: Vec::new(),
            counts: Vec::new(),
            board: Board::default(),
            standings: BTreeMap::new(),
        }
    }

    fn counts(&mut self, tenant: &str, requests: u64) {
        self.keys.push(Key {
            bucket: bucket(),
            tenant: Tenant::new(tenant).unwrap(),
        });
        self.counts.push(requests);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        let mut report = Report {
            greeting: self.identity.take().into(),
            time: Some(now),
            subscriptions: vec![bucket()].into(),
            ..Report::default()
        };
        let counts = &self.counts;
        self.outbox
            .fill(&mut report, &self.keys, |id: KeyId| Tally {
                counts: Counts {
                    offered: counts[id.index()],
                    ..Counts::ZERO
                },
                late: Counts::ZERO,
            });
        self.outbox.on_answer(InstanceId(AGGREGATOR));
        report
    }
}

struct World {
    pair: Pair,
    clients: Vec<Client>,
    now: Duration,
}

impl World {
    fn new(clients: u64) -> Self {
        let policy = "buckets: { api: { limit: 1000000, tenant_limit: 100, mode: enforce } }\n\
                      rollout: { require_gates: false }\n";
        let pair = Pair::new(
            policy,
            "tenants: { default: {}, listed: {} }\n",
            Bounds::default(),
        );
        let clients = (1..=clients).map(Client::new).collect();
        let mut world = Self {
            pair,
            clients,
            now: Duration::ZERO,
        };
        world.pair.roll_up(MonoTime::ZERO);
        world
    }

    fn at(&self) -> MonoTime {
        MonoTime::from_elapsed(self.now)
    }

    /// Advances a tenth of a second; every fifth ends with a roll-up and a tick of the controller.
    fn pass(&mut self) {
        self.now += Duration::from_millis(100);
        let now = self.at();
        for client in &mut self.clients {
            let report = client.report(now);
            self.pair
                .zone
                .on_report(now, client.stream, report)
                .unwrap();
        }
        self.pair.zone.on_tick(now);
        if self.now.as_millis().is_multiple_of(500) {
            self.pair.roll_up(now);
        }
        for client in &mut self.clients {
            let Some(message) = self.pair.zone.directives(now, client.stream) else {
                continue;
            };
            client.outbox.on_echo(message.echo);
            client.standings.extend(message.standings);
            message.buckets.iter().for_each(|bucket| {
                client.board.apply(bucket);
            });
        }
    }

    /// Returns the drop ratio of the first client's own key.
    fn ratio(&self, key: usize) -> Option<f64> {
        let Client {
            board, standings, ..
        } = &self.clients[0];
        let Standing { established, bin } = *standings.get(&KeyId(key as u32))?;
        let cut = board.get(&bucket())?.terms().cut?;
        Some(cut.ratio_of(established, bin?.rate()).0.as_f64())
    }
}

#[test]
fn hot_undeclared_tenant_is_limited_quickly() {
    const CLIENTS: usize = 4;
    let mut world = World::new(CLIENTS as u64);
    let mut next = 0;
    while next < OTHERS {
        for client in 0..CLIENTS {
            let client = &mut world.clients[client];
            // The counts of the previous tenants are settled, so their ids are reused.
            for at in 0..PER_CLIENT {
                let tenant = Tenant::new(&format!("other-{next}")).unwrap();
                next += 1;
                if let Some(key) = client.keys.get_mut(at) {
                    assert!(
                        client.outbox.replace(KeyId(at as u32)),
                        "{at} is not settled"
                    );
                    (key.tenant, client.counts[at]) = (tenant, 1 + (next % 3) as u64);
                } else {
                    client.counts(tenant.as_str(), 1);
                }
            }
        }
        (0..30).for_each(|_| world.pass());
    }
    assert!(world.pair.zone.keys() <= Bounds::default().tenants_per_bucket_max);
    assert!(world.pair.zone.keys() > Bounds::default().tenants_per_bucket_max / 2);

    let at = world.clients[0].keys.len();
    world.clients[0].counts("hot", 0);
    assert_eq!(world.ratio(at), None);
    // Its traffic starts just after a tick.
    let mut tenths = 0;
    for _ in 0..10 {
        world.clients[0].counts[at] += HOT_RPS / 10;
        world.pass();
        tenths += 1;
        if world.ratio(at).is_some_and(|ratio| ratio > 0.0) {
            break;
        }
    }
    let due = 1.0 - TENANT_LIMIT / HOT_RPS as f64;
    let ratio = world.ratio(at);
    assert!(
        tenths <= 10 && ratio.is_some_and(|ratio| ratio > 0.9),
        "{ratio:?} after {tenths} tenths of a second"
    );
    for _ in tenths..10 {
        world.clients[0].counts[at] += HOT_RPS / 10;
        world.pass();
    }
    let ratio = world.ratio(at).unwrap();
    assert!((ratio - due).abs() < 0.01, "{ratio} is not {due}");
}
