//! A thousand aggregators lose their leader together and look for its successor: real zones without clients, with the
//! real driver of their streams, all in this process.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Name, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Report as ChildReport, Role};
use plimsoll_host::{Shared, descriptors};
use plimsoll_proto::driver::child::{self, Observer, StreamError};
use plimsoll_proto::transport::{Dial, ParentList, Security};
use plimsoll_testing::fleet::policy;
use plimsoll_testing::members::{Members, ZONES};
use plimsoll_testing::process::until;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::measure::report::Report;
use crate::shutdown;

/// As many as a controller takes, with the processes of the fleet.
const ALL: usize = 1_000;
const AGGREGATORS: usize = ALL - ZONES.len();
/// From the last aggregator that connects to the kill.
const SETTLE: Duration = Duration::from_secs(20);
/// From the last aggregator that is back to the end.
const AFTER: Duration = Duration::from_secs(5);
const BACK_WITHIN: Duration = Duration::from_secs(15);
const AGE_MAX: Duration = Duration::from_secs(3);

pub(super) fn measure(report: &mut Report) {
    let policy = policy(1_000, "enforce", false);
    let Some(mut members) = Members::start("returns", 2, &policy) else {
        return;
    };
    descriptors::raise().unwrap();
    let runtime = shutdown::runtime().unwrap();
    let stop = CancellationToken::new();
    let _ends_the_streams = stop.clone().drop_guard();
    // A parent takes half of its children from one address at most.
    let listens = members.controllers.iter().map(|it| it.address("listen"));
    let direct: Vec<SocketAddr> = listens.collect();
    let relayed = direct.iter().map(|it| runtime.block_on(relay(*it)));
    let ways = [relayed.collect(), direct.clone()];
    let start = |number: usize| {
        let aggregator = Shared::new(Aggregator::new(number));
        let plain = Security::Plain { anywhere: false };
        let dial = |it| Dial::new(&format!("http://{it}"), &plain).unwrap();
        let parents = ParentList::new(ways[number * 2 / ALL].iter().map(dial).collect()).unwrap();
        runtime.spawn(child::run(aggregator.clone(), parents, stop.clone(), Quiet));
        aggregator
    };
    let aggregators: Vec<_> = (0..AGGREGATORS).map(start).collect();
    let all_have = |epoch| {
        let mut all = aggregators.iter();
        all.all(|it| it.with(|it, _| it.epoch > epoch))
    };
    until("all aggregators to follow the leader", || {
        all_have(0).then_some(())
    });
    sleep(SETTLE);
    let leader = members.until_led();
    let before = aggregators[0].with(|it, _| it.epoch);
    for aggregator in &aggregators {
        aggregator.with(|it, _| it.longest = Duration::ZERO);
    }
    members.controllers[leader].kill_9();
    let killed = Instant::now();
    members.until_led_without(leader);
    let without = killed.elapsed();
    until("all aggregators to follow the successor", || {
        all_have(before).then_some(())
    });
    let back = killed.elapsed();
    sleep(AFTER);
    let ages = aggregators.iter().map(|it| it.with(|it, _| it.longest));
    let mut ages: Vec<Duration> = ages.collect();
    ages.sort_unstable();
    let p99 = ages[AGGREGATORS * 99 / 100 - 1];
    report.row(
        "1,000 aggregators and a kill of the leader: all have directives of its successor",
        "<= 15 s",
        format!("{:.1} s", back.as_secs_f64()),
        back <= BACK_WITHIN,
    );
    report.row(
        "the longest age of the directives of each of them",
        "p99 < 3 s + the time without a leader",
        format!(
            "p99 {:.1} s, {:.1} s without a leader",
            p99.as_secs_f64(),
            without.as_secs_f64()
        ),
        p99 < AGE_MAX + without,
    );
}

/// Forwards connections from another address of this machine than the one that it has by default.
async fn relay(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4()?;
                socket.bind(([127, 0, 0, 3], 0).into())?;
                let mut far = socket.connect(target).await?;
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    address
}

/// A zone that notes the age of its directives.
struct Aggregator {
    zone: Zone,
    epoch: u64,
    applied: MonoTime,
    /// The longest time between two directives.
    longest: Duration,
}

impl Aggregator {
    fn new(number: usize) -> Self {
        let identity = Identity {
            instance: InstanceId(1 + number as u128),
            name: Name::new(&format!("aggregator-{number}")).unwrap(),
            service: Name::new("aggregator").unwrap(),
            zone: ZoneName::new(ZONES[number % ZONES.len()]).unwrap(),
            role: Role::Aggregator,
        };
        Self {
            zone: Zone::new(identity, Bounds::default(), Parameters::default()),
            epoch: 0,
            applied: MonoTime::ZERO,
            longest: Duration::ZERO,
        }
    }
}

impl Child for Aggregator {
    fn on_open(&mut self, now: MonoTime) {
        self.zone.on_open(now);
    }

    fn report(&mut self, now: MonoTime) -> ChildReport {
        self.zone.on_tick(now);
        self.zone.report(now)
    }

    fn on_directives(
        &mut self,
        now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        let epoch = directives.lead.epoch();
        self.zone.on_directives(now, directives)?;
        if let Some(epoch) = epoch {
            self.longest = self.longest.max(now.since(self.applied));
            (self.epoch, self.applied) = (epoch.0, now);
        }
        Ok(())
    }

    fn is_report_due(&self) -> bool {
        self.zone.is_report_due()
    }

    fn report_interval(&self) -> Duration {
        self.zone.report_interval()
    }
}

struct Quiet;

impl Observer for Quiet {
    fn on_connected(&mut self, _: Option<&str>) {}
    fn on_disconnected(&mut self, _: &StreamError, _: bool) {}
}
