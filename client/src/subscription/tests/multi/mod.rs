//! A limiter with several aggregators that crash and return: the current ratios, and a balance of
//! all counts.

mod fleet;

use super::*;
use crate::subscription::assignment::FAILOVER_DELAY_DEFAULT;
use fleet::{BUCKETS, Fleet, ROLLUP, STEP};
use plimsoll_core::directive::{Leader, SentLead};
use proptest::prelude::*;

fn traffic(fleet: &mut Fleet, span: Duration) {
    for _ in 0..span.as_millis() / STEP.as_millis() {
        for bucket in 0..BUCKETS.len() {
            fleet.send(bucket, 10);
        }
        fleet.step();
    }
}

#[test]
fn crashed_owners_buckets_return_without_loss() {
    let mut fleet = Fleet::new(3);
    let before = fleet.owners();
    assert!(before.iter().all(|buckets| *buckets > 0), "{before:?}");
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, FAILOVER_DELAY_DEFAULT + Duration::from_secs(5));
    let meanwhile = fleet.owners();
    assert_eq!(meanwhile[1], 0);
    assert!(meanwhile[0] >= before[0] && meanwhile[2] >= before[2]);
    // Only counts between two roll-ups were unconfirmed at the crash.
    let lost = fleet.unconfirmed;
    let per_rollup = before[1] as u64 * 10 * ROLLUP;
    assert!(
        lost <= 2 * per_rollup,
        "{lost} of {per_rollup} in a roll-up"
    );
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(20));
    assert_eq!(fleet.owners(), before);
    fleet.settle();
    assert_eq!(fleet.unconfirmed, lost, "the return loses no count");
    assert!(
        fleet.counted <= fleet.sent && fleet.sent <= fleet.counted + lost,
        "{}",
        fleet.counted
    );
}

#[test]
fn only_ratios_of_the_owner_apply() {
    let mut fleet = Fleet::new(2);
    let of_1: Vec<usize> = {
        fleet.aggregators[1].ratio = Some(1.0);
        fleet.pass(Duration::from_secs(1));
        (0..BUCKETS.len())
            .filter(|bucket| fleet.send(*bucket, 100) == 0)
            .collect()
    };
    assert_eq!(of_1.len(), fleet.owners()[1]);
    assert!(!of_1.is_empty() && of_1.len() < BUCKETS.len());
    let refused = |fleet: &mut Fleet| of_1.iter().all(|bucket| fleet.send(*bucket, 100) == 0);
    fleet.disconnect(1);
    fleet.pass(FAILOVER_DELAY_DEFAULT + Duration::from_millis(200));
    assert_eq!(fleet.owners()[1], 0);
    assert!(
        refused(&mut fleet),
        "the counts have moved, the ratios not yet"
    );
    fleet.pass(Duration::from_secs(3));
    assert!(!refused(&mut fleet));
    // While the returned aggregator directs no ratio, no bucket moves to it.
    fleet.aggregators[1].ratio = None;
    fleet.connect(1);
    fleet.pass(Duration::from_secs(30));
    assert_eq!(fleet.owners()[1], 0);
    fleet.aggregators[1].ratio = Some(1.0);
    fleet.pass(Duration::from_secs(10));
    assert_eq!(fleet.owners()[1], of_1.len());
    assert!(refused(&mut fleet));
}

#[test]
fn absent_controller_moves_no_bucket() {
    let mut fleet = Fleet::new(2);
    let before = fleet.owners();
    fleet.has_controller = false;
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, FAILOVER_DELAY_DEFAULT * 2);
    assert_eq!(fleet.owners(), before);
    fleet.has_controller = true;
    traffic(&mut fleet, Duration::from_secs(2));
    assert_eq!(fleet.owners()[1], 0);
    fleet.has_controller = false;
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(60));
    assert_eq!(fleet.owners()[1], 0);
    fleet.settle();
    assert_eq!(fleet.owners(), before);
}

#[test]
fn any_owner_rejects_older_epoch_directives() {
    let mut fleet = Fleet::new(2);
    fleet.aggregators[0].ratio = Some(1.0);
    fleet.aggregators[1].ratio = Some(1.0);
    fleet.epoch = 6;
    fleet.pass(Duration::from_secs(1));
    // The other aggregator has not received the new epoch, and directs under the old one.
    fleet.epoch = 5;
    fleet.disconnect(1);
    fleet.aggregators[0].ratio = Some(0.0);
    let refused = fleet.client.subscription.rejected;
    fleet
        .client
        .subscription
        .sessions
        .add(EndpointId(0), Some(Epoch(5)));
    fleet.aggregators[0].connected = false;
    fleet.connect(0);
    fleet.pass(FAILOVER_DELAY_DEFAULT + Duration::from_secs(5));
    assert!(fleet.client.subscription.rejected > refused);
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 0));
    assert_eq!(fleet.client.subscription.directives.epoch(), Some(Epoch(6)));
}

#[test]
fn greater_controller_is_followed_and_named() {
    let mut fleet = Fleet::new(2);
    fleet.pass(Duration::from_secs(1));
    let (now, seqs) = (
        fleet.client.now,
        [0, 1].map(|at| fleet.aggregators[at].seq + 1),
    );
    let subscription = &mut fleet.client.subscription;
    let mut apply = |at: usize, controller| {
        let leader = Leader {
            epoch: Epoch(6),
            instance: Some(InstanceId(controller)),
        };
        let message = Directives {
            lead: SentLead {
                leader: Some(leader),
                ..SentLead::default()
            },
            seq: seqs[at],
            ..Directives::default()
        };
        subscription.apply(EndpointId(at as u32), now, message)
    };
    apply(0, 9).unwrap();
    assert!(matches!(apply(1, 3), Err(StaleDirective::Rival { .. })));
    assert!(subscription.other_controllers.has_rival(now));
    let mut named = |at| {
        subscription
            .report_to(EndpointId(at), now)
            .lead
            .leader
            .unwrap()
    };
    assert_eq!(
        named(1),
        Leader {
            epoch: Epoch(6),
            instance: Some(InstanceId(9))
        }
    );
    assert_eq!(named(0).instance, None, "this aggregator forwards it");
}

#[test]
fn kill_from_any_aggregator_holds_for_all() {
    let mut fleet = Fleet::new(3);
    fleet
        .aggregators
        .iter_mut()
        .for_each(|place| place.ratio = Some(1.0));
    fleet.pass(Duration::from_secs(1));
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 0));
    let kill = Directives {
        kills: KillGeneration(1).into(),
        seq: 1_000_000,
        ..Directives::default()
    };
    fleet
        .client
        .subscription
        .apply(EndpointId(2), fleet.client.now, kill)
        .unwrap();
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 10));
    for id in 0..3 {
        let report = fleet
            .client
            .subscription
            .report_to(EndpointId(id), fleet.client.now);
        assert_eq!(report.kills.fleet, KillGeneration(1));
    }
}

#[test]
fn stream_subscribes_once_to_its_buckets() {
    let mut fleet = Fleet::new(3);
    let owners = fleet.owners();
    for (at, buckets) in owners.iter().enumerate() {
        assert_eq!(fleet.aggregators[at].subscribed.len(), *buckets);
        let report = fleet
            .client
            .subscription
            .report_to(EndpointId(at as u32), fleet.client.now);
        assert!(report.subscriptions.added.is_empty());
        assert_eq!(report.seq, fleet.aggregators[at].seq + 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { bucket: usize, times: u32 },
    Pass(u32),
    Crash(usize),
    Restart(usize),
    Disconnect(usize),
    Controller(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..BUCKETS.len(), 1..50u32).prop_map(|(bucket, times)| Step::Send { bucket, times }),
        6 => prop_oneof![1..20u32, 150..400u32].prop_map(Step::Pass),
        2 => (0..3usize).prop_map(Step::Crash),
        3 => (0..3usize).prop_map(Step::Restart),
        1 => (0..3usize).prop_map(Step::Disconnect),
        1 => any::<bool>().prop_map(Step::Controller),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn lost_counts_are_named_and_none_repeats(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut fleet = Fleet::new(3);
        let before = fleet.owners();
        for step in steps {
            match step {
                Step::Send { bucket, times } => _ = fleet.send(bucket, times),
                Step::Pass(steps) => (0..steps).for_each(|_| fleet.step()),
                Step::Crash(at) => fleet.crash(at),
                Step::Restart(at) => fleet.restart(at),
                Step::Disconnect(at) => fleet.disconnect(at),
                Step::Controller(yes) => fleet.has_controller = yes,
            }
            prop_assert!(fleet.counted <= fleet.sent);
        }
        fleet.settle();
        prop_assert!(fleet.counted <= fleet.sent);
        prop_assert!(fleet.sent <= fleet.counted + fleet.unconfirmed, "{} {}", fleet.counted, fleet.unconfirmed);
        prop_assert_eq!(fleet.owners(), before);
    }
}
