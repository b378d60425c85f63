//! The owners of buckets after losses and returns of aggregators, and the times of the moves.

use super::liveness::{NEVER_REACHED_MAX, STEADY_AFTER};
use super::placement::{DRAIN_MAX, RATIOS_AFTER, RETRY_AFTER};
use super::*;
use proptest::prelude::*;

struct Client {
    assignment: Assignment,
    now: MonoTime,
    sessions: Sessions,
}

#[derive(Clone, Copy)]
struct Sessions {
    is_confirmed: bool,
    has_directive: bool,
    reaches_controller: bool,
}

const READY: Sessions = Sessions {
    is_confirmed: true,
    has_directive: true,
    reaches_controller: true,
};

impl SessionState for Sessions {
    fn is_confirmed(&self, _: usize, _: EndpointId) -> bool {
        self.is_confirmed
    }

    fn has_directive(&self, _: usize, _: EndpointId) -> bool {
        self.has_directive
    }

    fn reaches_controller(&self, _: EndpointId) -> bool {
        self.reaches_controller
    }
}

const BUCKETS: usize = 40;

fn names(count: usize) -> Vec<Arc<str>> {
    (0..count)
        .map(|at| format!("aggregator-{at}:7410").into())
        .collect()
}

impl Client {
    fn new(count: usize) -> Self {
        let mut client = Self {
            assignment: Assignment::new(FAILOVER_DELAY_DEFAULT),
            now: MonoTime::from_elapsed(Duration::from_secs(100)),
            sessions: READY,
        };
        client.assignment.list(client.now, &names(count));
        (0..BUCKETS).for_each(|bucket| client.assignment.add(&format!("bucket-{bucket}")));
        (0..count).for_each(|at| client.live(at));
        client.pass(STEADY_AFTER);
        client
    }

    fn live(&mut self, at: usize) {
        self.assignment
            .liveness
            .on_live(self.now, EndpointId(at as u32));
    }

    fn lose(&mut self, at: usize) {
        self.assignment
            .liveness
            .on_lost(self.now, EndpointId(at as u32));
    }

    fn tick(&mut self) -> Vec<Change> {
        self.assignment.on_tick(self.now, &self.sessions)
    }

    /// Lets time pass with a tick every 100 ms. Returns the changes.
    fn pass(&mut self, span: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..span.as_millis() / 100 {
            self.now = self.now + Duration::from_millis(100);
            changes.extend(self.tick());
        }
        changes
    }

    fn owners(&self) -> Vec<usize> {
        (0..BUCKETS)
            .map(|bucket| self.assignment.owner(bucket).unwrap().0 as usize)
            .collect()
    }
}

fn moves(changes: &[Change]) -> usize {
    changes
        .iter()
        .filter(|change| matches!(change, Change::Moved { .. }))
        .count()
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn buckets_move_after_the_failover_delay() {
    let mut client = Client::new(3);
    let before = client.owners();
    client.lose(1);
    assert_eq!(
        client.pass(FAILOVER_DELAY_DEFAULT - Duration::from_millis(100)),
        []
    );
    assert_eq!(client.owners(), before);
    let changes = client.pass(Duration::from_millis(100));
    let after = client.owners();
    assert_eq!(
        moves(&changes),
        before.iter().filter(|owner| **owner == 1).count()
    );
    for (before, after) in before.iter().zip(&after) {
        assert!(if *before == 1 {
            *after != 1
        } else {
            after == before
        });
    }
    assert!([0, 2].iter().all(|to| {
        before
            .iter()
            .zip(&after)
            .any(|(before, after)| *before == 1 && after == to)
    }));
}

#[test]
fn quickly_returning_aggregator_keeps_its_buckets() {
    let mut client = Client::new(3);
    let before = client.owners();
    client.lose(1);
    client.pass(FAILOVER_DELAY_DEFAULT - seconds(1));
    client.live(1);
    assert_eq!(client.pass(seconds(60)), []);
    assert_eq!(client.owners(), before);
}

#[test]
fn steadily_returning_aggregator_regains_its_buckets() {
    let mut client = Client::new(3);
    let before = client.owners();
    client.lose(1);
    client.pass(FAILOVER_DELAY_DEFAULT + RATIOS_AFTER);
    client.live(1);
    client.sessions.is_confirmed = false;
    assert_eq!(client.pass(STEADY_AFTER - Duration::from_millis(100)), []);
    assert!((0..BUCKETS).all(|bucket| !client.assignment.is_draining(bucket)));
    client.pass(seconds(1));
    for (bucket, before) in before.iter().enumerate() {
        assert_eq!(
            client.assignment.is_draining(bucket),
            *before == 1,
            "{bucket}"
        );
        assert_eq!(
            client.assignment.ratios_apply(bucket),
            *before != 1,
            "{bucket}"
        );
    }
    client.sessions.is_confirmed = true;
    let changes = client.pass(Duration::from_millis(100));
    assert_eq!(client.owners(), before);
    // The ratios follow 2 s after the counts.
    assert_eq!(changes.len(), moves(&changes));
    assert_eq!(client.pass(RATIOS_AFTER).len(), changes.len());
    assert!((0..BUCKETS).all(|bucket| client.assignment.ratios_apply(bucket)));
}

#[test]
fn bucket_with_unconfirmed_counts_drains_again() {
    let mut client = Client::new(2);
    client.lose(1);
    client.pass(FAILOVER_DELAY_DEFAULT + RATIOS_AFTER);
    client.live(1);
    client.sessions.is_confirmed = false;
    let changes = client.pass(STEADY_AFTER + DRAIN_MAX + seconds(1));
    assert_eq!(moves(&changes), 0);
    assert!(!changes.is_empty(), "the ratios of the owner apply again");
    assert!((0..BUCKETS).all(|bucket| !client.assignment.is_draining(bucket)));
    client.sessions.is_confirmed = true;
    assert_eq!(moves(&client.pass(RETRY_AFTER)), changes.len());
}

#[test]
fn bucket_waits_until_its_home_is_ready() {
    let waits = [
        |client: &mut Client| client.sessions.has_directive = false,
        |client: &mut Client| client.sessions.reaches_controller = false,
    ];
    for wait in waits {
        let mut client = Client::new(2);
        client.lose(1);
        client.pass(FAILOVER_DELAY_DEFAULT + RATIOS_AFTER);
        client.live(1);
        wait(&mut client);
        assert_eq!(client.pass(seconds(60)), []);
    }
    // Nor does a bucket leave a gone aggregator for another without contact with the controller.
    let mut client = Client::new(2);
    client.lose(1);
    client.sessions.reaches_controller = false;
    assert_eq!(client.pass(FAILOVER_DELAY_DEFAULT * 3), []);
    client.sessions.reaches_controller = true;
    assert!(moves(&client.pass(seconds(1))) > 0);
}

#[test]
fn without_any_candidate_every_bucket_stays() {
    let mut client = Client::new(3);
    let before = client.owners();
    (0..3).for_each(|at| client.lose(at));
    assert_eq!(client.pass(FAILOVER_DELAY_DEFAULT * 10), []);
    assert_eq!(client.owners(), before);
}

#[test]
fn unreachable_aggregator_loses_its_buckets() {
    let mut assignment = Assignment::new(FAILOVER_DELAY_DEFAULT);
    let now = MonoTime::from_elapsed(seconds(1));
    assignment.list(now, &names(2));
    (0..BUCKETS).for_each(|bucket| assignment.add(&format!("bucket-{bucket}")));
    assignment.liveness.on_live(now, EndpointId(0));
    assert_eq!(
        assignment.on_tick(now + Duration::from_millis(2_900), &READY),
        []
    );
    assert!(moves(&assignment.on_tick(now + NEVER_REACHED_MAX, &READY)) > 0);
    assert!((0..BUCKETS).all(|bucket| assignment.owner(bucket) == Some(EndpointId(0))));
}

#[test]
fn new_aggregator_takes_its_buckets() {
    let mut client = Client::new(2);
    let before = client.owners();
    let new = client.assignment.list(client.now, &names(3));
    assert_eq!(new, [(EndpointId(2), names(3).remove(2))]);
    assert_eq!(
        client.pass(seconds(60)),
        [],
        "a new aggregator gets no bucket before it answers"
    );
    client.live(2);
    let changes = client.pass(seconds(60));
    let after = client.owners();
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before == after || *after == 2)
    );
    assert_eq!(
        moves(&changes),
        after.iter().filter(|owner| **owner == 2).count()
    );
    // It leaves again. It is live, so its buckets drain first.
    client.assignment.list(client.now, &names(2));
    assert_eq!(client.assignment.remove_unused(), []);
    client.pass(seconds(10));
    assert_eq!(client.owners(), before);
    assert_eq!(client.assignment.remove_unused(), [EndpointId(2)]);
    assert_eq!(client.assignment.remove_unused(), []);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Live(usize),
    Lose(usize),
    Confirm(bool),
    ReachController(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4usize).prop_map(Step::Live),
        (0..4usize).prop_map(Step::Lose),
        any::<bool>().prop_map(Step::Confirm),
        any::<bool>().prop_map(Step::ReachController),
        (1..300u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn clients_of_the_same_aggregators_agree(
        one in prop::collection::vec(step(), 0..40), other in prop::collection::vec(step(), 0..40),
        live in prop::collection::vec(any::<bool>(), 4),
    ) {
        let mut owners = Vec::new();
        for steps in [one, other] {
            let mut client = Client::new(4);
            for step in steps {
                match step {
                    Step::Live(at) => client.live(at),
                    Step::Lose(at) => client.lose(at),
                    Step::Confirm(yes) => client.sessions.is_confirmed = yes,
                    Step::ReachController(yes) => client.sessions.reaches_controller = yes,
                    Step::Pass(ticks) => {
                        for change in client.pass(Duration::from_millis(100) * ticks as u32) {
                            let Change::Moved { from, to, .. } = change else { continue };
                            prop_assert!(from != Some(to) && client.assignment.liveness.is_live(to));
                        }
                    }
                }
            }
            client.sessions = READY;
            for (at, live) in live.iter().enumerate() {
                if *live { client.live(at) } else { client.lose(at) }
            }
            client.pass(FAILOVER_DELAY_DEFAULT + RETRY_AFTER + STEADY_AFTER + RATIOS_AFTER);
            prop_assert!((0..BUCKETS).all(|bucket| client.assignment.ratios_apply(bucket)));
            owners.push(client.owners());
        }
        if live.contains(&true) {
            prop_assert_eq!(&owners[0], &owners[1]);
            prop_assert!(owners[0].iter().all(|owner| live[*owner]));
        }
    }
}
