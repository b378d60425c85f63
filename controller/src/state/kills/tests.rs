//! Generations and modes after every sequence of commands, aggregators' reports, policy files and restarts.

use std::time::Duration;

use plimsoll_core::kill::{KillOrder, OrderId};
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{InstanceId, Report};
use plimsoll_policy::{ONE_CLASS_TENANTS, Source};

use super::*;

fn policy_of(text: &str) -> Policy {
    let policy = Source {
        name: "policy.yaml",
        text,
    };
    Policy::read(
        policy,
        Source {
            name: "tenants.yaml",
            text: ONE_CLASS_TENANTS,
        },
    )
    .unwrap()
    .0
}

fn policy(kill: bool, api: &str, pattern: &str) -> Policy {
    policy_of(&format!(
        "kill_switch: {kill}\nbuckets:\n  api: {{ limit: 1, mode: {api} }}\n  \"p/*\": {{ limit: 1, mode: {pattern} }}\n\
         rollout: {{ require_gates: false }}\n"
    ))
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn alone(name: &str) -> Scope {
    Scope::Bucket(bucket(name))
}

fn ordered(until_s: Option<i64>) -> Command {
    Command {
        reason: Some(Text::new("it refuses paying callers").unwrap()),
        by: None,
        since_s: Some(0),
        until_s,
        ..Command::default()
    }
}

struct Scene {
    durable: DurableState,
    policy: Policy,
    now: MonoTime,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    File(bool),
    Modes(&'static str, &'static str),
    On,
    OnFor(i64),
    Off,
    Time(i64),
    /// Seconds by the clock of the process.
    Wait(u64),
    /// A generation without an order, at a controller that has lost its state.
    Learn(u64),
    Claim(u64),
    /// An aggregator process that ended a kill without knowing an order for it, and its generation.
    EndHeld(u128, u64),
    PassClaim(u64),
    /// An aggregator process, the generation of its order for the fleet, and its age in milliseconds.
    Order(u128, u64, u64),
    Restart,
    OnApi,
    OffApi,
    LearnApi(u64),
    OnP1,
    OffP1,
}

impl Scene {
    fn new() -> Self {
        let policy = policy(false, "enforce", "enforce");
        let mut durable = DurableState::first_start();
        durable.on_policy(&policy);
        Self {
            durable,
            policy,
            now: MonoTime::ZERO,
        }
    }

    fn act(&mut self, act: Act) {
        let (durable, policy) = (&mut self.durable, &self.policy);
        let fleet = &Scope::Fleet;
        // A second passes with every act.
        self.now = self.now + Duration::from_secs(1);
        let now = Now {
            at: self.now,
            unix_s: Some(self.now.as_micros() as i64 / 1_000_000),
        };
        match act {
            Act::File(kill) => {
                let [api, pattern] =
                    ["api", "p/*"].map(|entry| durable.stages[entry].file.as_str());
                self.policy = super::tests::policy(kill, api, pattern);
                durable.on_policy(&self.policy);
            }
            Act::Modes(api, pattern) => {
                self.policy = super::tests::policy(durable.killed_by_file, api, pattern);
                durable.on_policy(&self.policy);
            }
            Act::On => drop(durable.on_command(fleet, ordered(None), policy).unwrap()),
            Act::OnFor(until) => drop(
                durable
                    .on_command(fleet, ordered(Some(until)), policy)
                    .unwrap(),
            ),
            Act::Off => drop(durable.on_command_ends(fleet, now, policy)),
            Act::Time(unix_s) => {
                durable.count_down(self.now, unix_s);
                durable.on_time(unix_s, policy);
            }
            Act::Wait(s) => self.now = self.now + Duration::from_secs(s),
            Act::Learn(generation) | Act::Claim(generation) => {
                let report = Report {
                    kill: KillGeneration(generation),
                    ..Report::default()
                };
                durable.on_report(&report, matches!(act, Act::Learn(_)), now, policy);
            }
            Act::EndHeld(process, generation) => {
                let id = OrderId {
                    scope: Scope::Fleet,
                    given_at: InstanceId(process),
                };
                let generation = KillGeneration(generation);
                let order = KillOrder {
                    generation,
                    age: Duration::ZERO,
                    ends_held: true,
                };
                let report = Report {
                    kill: generation,
                    orders: [(id, order)].into(),
                    ..Report::default()
                };
                durable.on_report(&report, false, now, policy);
            }
            Act::PassClaim(generation) => {
                durable.pass_claim(fleet, KillGeneration(generation));
            }
            Act::Order(process, generation, age_ms) => {
                let id = OrderId {
                    scope: Scope::Fleet,
                    given_at: InstanceId(process),
                };
                let generation = KillGeneration(generation);
                let order = KillOrder {
                    generation,
                    age: Duration::from_millis(age_ms),
                    ends_held: false,
                };
                let report = Report {
                    kill: generation,
                    orders: [(id, order)].into(),
                    ..Report::default()
                };
                durable.on_report(&report, false, now, policy);
            }
            Act::Restart => {
                let text = serde_json::to_string(&durable).unwrap();
                *durable = serde_json::from_str(&text).unwrap();
                durable.on_policy(policy);
            }
            Act::OnApi => drop(
                durable
                    .on_command(&alone("api"), ordered(None), policy)
                    .unwrap(),
            ),
            Act::OffApi => drop(durable.on_command_ends(&alone("api"), now, policy)),
            Act::LearnApi(generation) => {
                let kills = [(bucket("api"), KillGeneration(generation))].into();
                durable.on_report(
                    &Report {
                        kills,
                        ..Report::default()
                    },
                    true,
                    now,
                    policy,
                );
            }
            Act::OnP1 => drop(
                durable
                    .on_command(&alone("p/1"), ordered(None), policy)
                    .unwrap(),
            ),
            Act::OffP1 => drop(durable.on_command_ends(&alone("p/1"), now, policy)),
        }
        // The brain does so before it computes directives.
        self.durable.settle_held(&self.policy);
    }

    /// The generations of the fleet, `api` and `p/1`, and flags for whether `api`, `p/1` and `p/2` enforce.
    fn seen(&self) -> ([u64; 3], [bool; 3]) {
        let generation = |scope: &Scope| self.durable.generation(scope).0;
        let enforces = |(entry, name): (&str, &str)| {
            self.durable
                .mode_of(&bucket(name), self.durable.stages[entry].stage)
                == Mode::Enforce
        };
        (
            [
                generation(&Scope::Fleet),
                generation(&alone("api")),
                generation(&alone("p/1")),
            ],
            [("api", "api"), ("p/*", "p/1"), ("p/*", "p/2")].map(enforces),
        )
    }
}

#[test]
fn any_causes_move_modes_validly() {
    use Act::*;
    const NONE: [bool; 3] = [false; 3];
    const ALL: [bool; 3] = [true; 3];
    let up = Modes("enforce", "enforce");
    let down = Modes("shadow", "shadow");
    let table: &[(&[Act], [u64; 3], [bool; 3])] = &[
        (&[], [0, 0, 0], ALL),
        // Each cause without the other; both survive a restart.
        (&[On], [1, 0, 0], NONE),
        (&[On, Restart], [1, 0, 0], NONE),
        (&[File(true)], [1, 0, 0], NONE),
        (&[File(true), Restart], [1, 0, 0], NONE),
        // The end of a kill leaves shadow, until the modes are raised.
        (&[On, Off], [2, 0, 0], NONE),
        (&[On, Off, Restart], [2, 0, 0], NONE),
        (&[On, Off, up], [2, 0, 0], NONE),
        (&[On, Off, down, up], [2, 0, 0], ALL),
        (&[File(true), File(false)], [2, 0, 0], NONE),
        (&[File(true), File(false), down, up], [2, 0, 0], ALL),
        (&[On, down, up, Off], [2, 0, 0], NONE),
        (&[On, down, Off, up], [2, 0, 0], ALL),
        // Both causes: the generation changes only with the first and the last of them.
        (&[File(true), On], [1, 0, 0], NONE),
        (&[On, On], [1, 0, 0], NONE),
        (&[File(true), On, Off], [1, 0, 0], NONE),
        (&[On, File(true), File(false)], [1, 0, 0], NONE),
        (&[File(true), On, File(false), Off], [2, 0, 0], NONE),
        (&[Off, File(false)], [0, 0, 0], ALL),
        (&[On, Off, On], [3, 0, 0], NONE),
        // A time to live: its expiry is like an end by command, and happens once.
        (&[OnFor(600), Time(599)], [1, 0, 0], NONE),
        (&[OnFor(600), Time(600)], [2, 0, 0], NONE),
        (&[OnFor(600), Time(600), Restart, Time(0)], [2, 0, 0], NONE),
        (&[OnFor(600), Restart, Time(600)], [2, 0, 0], NONE),
        (&[OnFor(600), Time(-600), Time(599)], [1, 0, 0], NONE),
        (&[OnFor(600), File(true), Time(600)], [1, 0, 0], NONE),
        (&[OnFor(600), On, Time(600)], [1, 0, 0], NONE),
        (&[On, OnFor(600), Time(600)], [2, 0, 0], NONE),
        (
            &[OnFor(600), Time(600), down, up, Time(0), Time(700)],
            [2, 0, 0],
            ALL,
        ),
        // A time of day that jumps back does not lengthen a kill, also not across a restart.
        (
            &[OnFor(600), Time(0), Wait(590), Time(-9_000)],
            [1, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Time(0), Wait(600), Time(-9_000)],
            [2, 0, 0],
            NONE,
        ),
        (
            &[
                OnFor(600),
                Time(0),
                Wait(570),
                Time(0),
                Restart,
                Time(-9_000),
                Wait(35),
                Time(-9_000),
            ],
            [2, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Time(0), Restart, Time(550), Wait(50), Time(0)],
            [2, 0, 0],
            NONE,
        ),
        // A generation without an order moves nothing here. A command moves past it, and lowers no mode if nothing
        // was killed.
        (&[Claim(7)], [0, 0, 0], ALL),
        (&[Claim(8)], [0, 0, 0], ALL),
        (&[On, Claim(2)], [1, 0, 0], NONE),
        (&[PassClaim(7), Off], [8, 0, 0], ALL),
        (&[PassClaim(8), Off], [8, 0, 0], ALL),
        (&[PassClaim(7), On], [9, 0, 0], NONE),
        (&[On, PassClaim(7), Off], [8, 0, 0], NONE),
        (&[On, PassClaim(8), Off], [10, 0, 0], NONE),
        // The end of a kill that an aggregator held ends the orders of others, but no command given here.
        (&[Order(7, 1, 0), EndHeld(8, 2)], [2, 0, 0], NONE),
        (
            &[Order(7, 1, 0), Order(8, 1, 0), EndHeld(9, 2)],
            [2, 0, 0],
            NONE,
        ),
        (&[On, EndHeld(8, 2)], [3, 0, 0], NONE),
        (
            &[OnFor(600), Order(7, 1, 0), EndHeld(8, 2), Time(600)],
            [4, 0, 0],
            NONE,
        ),
        (
            &[Order(7, 1, 0), Order(8, 5, 0), EndHeld(9, 2)],
            [5, 0, 0],
            NONE,
        ),
        // An implausible generation counts only for its order.
        (&[Order(7, u64::MAX, 0)], [1, 0, 0], NONE),
        // Generations of an aggregator at a controller without state: an older one is ignored, an odd one is an order, an even
        // one moves the number only.
        (&[Learn(0)], [0, 0, 0], ALL),
        (&[Learn(7)], [7, 0, 0], NONE),
        (&[Learn(7), Learn(6), Learn(5)], [7, 0, 0], NONE),
        (&[Learn(7), Restart, File(false)], [7, 0, 0], NONE),
        (&[Learn(7), File(true), File(false)], [7, 0, 0], NONE),
        (&[Learn(7), Off], [8, 0, 0], NONE),
        (&[Learn(7), Learn(8)], [8, 0, 0], NONE),
        (&[Learn(7), Learn(8), down, up], [8, 0, 0], ALL),
        (&[Learn(2)], [2, 0, 0], ALL),
        (&[Learn(2), down, up, Learn(2), Learn(1)], [2, 0, 0], ALL),
        (&[On, Off, down, up, Learn(1)], [2, 0, 0], ALL),
        (&[On, Learn(2)], [3, 0, 0], NONE),
        (&[File(true), Learn(2)], [3, 0, 0], NONE),
        (&[File(true), Learn(4), File(false)], [6, 0, 0], NONE),
        (&[OnFor(600), Learn(3), Time(600)], [4, 0, 0], NONE),
        // Ordered and ended at an aggregator with its own generations: the modes were raised
        // without knowledge of it.
        (&[Order(7, 2, 0)], [2, 0, 0], NONE),
        (&[Order(7, 2, 0), Restart, up], [2, 0, 0], NONE),
        (&[Order(7, 2, 0), down, up], [2, 0, 0], ALL),
        (&[On, Off, down, up, Order(7, 2, 0)], [4, 0, 0], NONE),
        (&[On, Order(7, 2, 0)], [3, 0, 0], NONE),
        (&[On, Order(7, 2, 0), Off], [4, 0, 0], NONE),
        // An order kills with any generation, and the kill ends with its last order.
        (&[Order(7, 1, 0)], [1, 0, 0], NONE),
        (&[On, Off, down, up, Order(7, 1, 0)], [3, 0, 0], NONE),
        (&[Order(7, 1, 0), Restart, Order(7, 2, 0)], [2, 0, 0], NONE),
        (&[Learn(4), Order(7, 1, 0)], [5, 0, 0], NONE),
        (&[Learn(4), Order(7, 1, 0), Order(7, 2, 0)], [6, 0, 0], NONE),
        (
            &[Learn(4), Order(7, 1, 0), Restart, Order(7, 2, 0)],
            [6, 0, 0],
            NONE,
        ),
        (
            &[Learn(4), Order(7, 1, 0), Order(8, 1, 0), Order(7, 2, 0)],
            [5, 0, 0],
            NONE,
        ),
        (
            &[
                Learn(4),
                Order(7, 1, 0),
                Order(8, 1, 0),
                Order(7, 2, 0),
                Order(8, 2, 0),
            ],
            [6, 0, 0],
            NONE,
        ),
        (
            &[Order(7, 1, 0), Order(8, 1, 0), Order(7, 2, 0)],
            [3, 0, 0],
            NONE,
        ),
        (&[Learn(1), Order(7, 2, 0)], [2, 0, 0], NONE),
        (&[Order(7, 1, 0), On, Order(7, 2, 0)], [3, 0, 0], NONE),
        (&[Order(7, 1, 0), Off], [2, 0, 0], NONE),
        // A kill that was ended by command does not return with an aggregator that returns later,
        // and later promotions stay.
        (&[On, Off, Order(7, 1, 1_001)], [2, 0, 0], NONE),
        (&[On, Off, down, up, Order(7, 1, 3_001)], [2, 0, 0], ALL),
        (&[On, Off, down, up, Order(7, 2, 3_001)], [2, 0, 0], ALL),
        (&[Order(8, 1, 0), Off, Order(7, 1, 5_000)], [2, 0, 0], NONE),
        (
            &[Order(8, 1, 0), Off, Order(7, 1, 5_000), Order(8, 1, 5_000)],
            [2, 0, 0],
            NONE,
        ),
        (
            &[Order(8, 1, 0), Off, Restart, Order(7, 1, 4_000)],
            [2, 0, 0],
            NONE,
        ),
        // The order is a later one, or may be.
        (&[On, Off, Order(7, 1, 1_000)], [3, 0, 0], NONE),
        (&[On, Off, down, up, Order(7, 1, 3_000)], [3, 0, 0], NONE),
        (&[On, Off, Restart, Order(7, 1, 2_001)], [3, 0, 0], NONE),
        // The end arrived before any order was known: the buckets go to shadow with the first one.
        (&[Off, Order(7, 1, 5_000)], [2, 0, 0], NONE),
        (
            &[Off, Order(7, 1, 5_000), down, up, Order(8, 1, 9_000)],
            [2, 0, 0],
            ALL,
        ),
        (
            &[On, Off, down, up, Off, Order(7, 1, 9_000)],
            [4, 0, 0],
            NONE,
        ),
        // A generation that is news shows that the switch was used again elsewhere.
        (&[On, Off, down, up, Order(7, 5, 9_000)], [6, 0, 0], NONE),
        // The end of a kill by its time, or by the file, ends no order.
        (&[OnFor(2), Time(2), Order(7, 1, 9_000)], [3, 0, 0], NONE),
        (
            &[File(true), File(false), Order(7, 1, 9_000)],
            [3, 0, 0],
            NONE,
        ),
        // An order outlasts the time to live of a command, until it is ended where it was given, or by
        // command.
        (&[OnFor(600), Order(7, 1, 0), Time(600)], [1, 0, 0], NONE),
        (
            &[OnFor(600), Order(7, 1, 0), Restart, Time(600), Time(700)],
            [1, 0, 0],
            NONE,
        ),
        (&[Order(7, 1, 0), OnFor(600), Time(600)], [1, 0, 0], NONE),
        (
            &[OnFor(600), Order(7, 1, 0), OnFor(700), Time(700)],
            [1, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Order(7, 1, 0), Time(600), Order(7, 2, 0)],
            [2, 0, 0],
            NONE,
        ),
        (
            &[
                OnFor(600),
                Order(7, 1, 0),
                Order(8, 1, 0),
                Time(600),
                Order(7, 2, 0),
            ],
            [3, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Order(7, 1, 0), Order(7, 2, 0), Time(600)],
            [4, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Order(7, 1, 0), Learn(2), Time(600)],
            [4, 0, 0],
            NONE,
        ),
        (
            &[OnFor(600), Order(7, 1, 0), Time(600), Off],
            [2, 0, 0],
            NONE,
        ),
        (&[OnFor(600), Order(7, 1, 0), Off], [2, 0, 0], NONE),
        // The end of the order leaves a kill by another cause.
        (&[On, Off, On, Order(7, 1, 9_000)], [3, 0, 0], NONE),
        (&[File(true), Off, Order(7, 1, 9_000)], [1, 0, 0], NONE),
        // Only one bucket.
        (&[OnApi], [0, 1, 0], [false, true, true]),
        (&[OnApi, Restart], [0, 1, 0], [false, true, true]),
        (&[OnApi, OffApi], [0, 2, 0], [false, true, true]),
        (
            &[OnApi, OffApi, Restart, up],
            [0, 2, 0],
            [false, true, true],
        ),
        (
            &[OnApi, OffApi, Modes("shadow", "enforce"), up],
            [0, 2, 0],
            ALL,
        ),
        (
            &[OnApi, Modes("shadow", "enforce"), up],
            [0, 1, 0],
            [false, true, true],
        ),
        (
            &[OnApi, Modes("shadow", "enforce"), up, OffApi],
            [0, 2, 0],
            [false, true, true],
        ),
        (&[OnApi, On, Off, down, up], [2, 1, 0], [false, true, true]),
        (&[OnApi, On, OffApi, Off, down, up], [2, 2, 0], ALL),
        (&[LearnApi(3)], [0, 3, 0], [false, true, true]),
        (
            &[LearnApi(3), LearnApi(4), Restart],
            [0, 4, 0],
            [false, true, true],
        ),
        // A bucket that shares its entry: the others enforce, and it is released when the entry is raised.
        (&[OnP1], [0, 0, 1], [true, false, true]),
        (&[OnP1, OffP1], [0, 0, 2], [true, false, true]),
        (&[OnP1, OffP1, Restart, up], [0, 0, 2], [true, false, true]),
        (
            &[OnP1, OffP1, Modes("enforce", "canary"), up],
            [0, 0, 2],
            ALL,
        ),
        (
            &[OnP1, Modes("enforce", "canary"), up, OffP1],
            [0, 0, 2],
            [true, false, true],
        ),
        (
            &[OnP1, Modes("enforce", "canary"), OffP1, up],
            [0, 0, 2],
            ALL,
        ),
        (&[OnP1, OffP1, On, Off, down, up], [2, 0, 2], ALL),
    ];
    for (acts, generations, enforces) in table {
        let mut scene = Scene::new();
        acts.iter().for_each(|act| scene.act(*act));
        assert_eq!(scene.seen(), (*generations, *enforces), "{acts:?}");
    }
}

#[test]
fn edited_killed_bucket_stays_in_shadow() {
    let mut scene = Scene::new();
    scene.act(Act::OnApi);
    scene.act(Act::OffApi);
    // Its own entry is removed, and an enforcing pattern covers it.
    let pattern =
        "buckets: { \"a*\": { limit: 1, mode: enforce } }\nrollout: { require_gates: false }\n";
    let under = |text: &str, durable: &mut DurableState| {
        let policy = policy_of(text);
        durable.on_policy(&policy);
        let stage = durable.stages[&policy.entry(&bucket("api")).unwrap()].stage;
        durable.mode_of(&bucket("api"), stage)
    };
    let durable = &mut scene.durable;
    assert_eq!(under(pattern, durable), Mode::Shadow);
    assert_eq!(under(pattern, durable), Mode::Shadow);
    assert_eq!(
        under(&format!("{pattern}# the same\n"), durable),
        Mode::Shadow
    );
    assert_eq!(
        under(&pattern.replace("enforce", "canary"), durable),
        Mode::Shadow
    );
    assert_eq!(
        under(pattern, durable),
        Mode::Enforce,
        "the entry was raised"
    );
}

#[test]
fn bucket_kills_never_block_fleet_kills() {
    let mut scene = Scene::new();
    for number in 0..KILLED_BUCKETS_MAX {
        scene
            .durable
            .on_command(&alone(&format!("b{number}")), ordered(None), &scene.policy)
            .unwrap();
    }
    assert_eq!(
        scene
            .durable
            .on_command(&alone("one-more"), ordered(None), &scene.policy),
        Err(KilledBucketsFull)
    );
    let learned = [(bucket("one-more"), KillGeneration(1))].into();
    let report = Report {
        kills: learned,
        ..Report::default()
    };
    let now = Now {
        at: scene.now,
        unix_s: None,
    };
    assert!(!scene.durable.on_report(&report, true, now, &scene.policy));
    scene.act(Act::On);
    assert_eq!(scene.durable.kill, KillGeneration(1));
}

#[test]
fn needless_ends_leave_room_for_kills() {
    let mut scene = Scene::new();
    scene.act(Act::OnApi);
    scene.act(Act::OffApi);
    let (durable, policy) = (&mut scene.durable, &scene.policy);
    let time = |second: u64| Now {
        at: MonoTime::ZERO + Duration::from_secs(second),
        unix_s: Some(second as i64),
    };
    for number in 0..KILLED_BUCKETS_MAX as u64 {
        assert!(!durable.on_command_ends(&alone(&format!("b{number}")), time(10 + number), policy));
    }
    assert_eq!(
        durable.on_command(&alone("one-more"), ordered(None), policy),
        Ok(true)
    );
    assert_eq!(durable.bucket_kills.len(), KILLED_BUCKETS_MAX);
    // Only the earliest ends are forgotten: a late order finds the others.
    let ended = |name: &str| {
        durable
            .bucket_kills
            .get(&bucket(name))
            .is_some_and(|of| of.ended.is_some())
    };
    assert_eq!(
        ["api", "b0", "b1", "b2"].map(ended),
        [true, false, false, true]
    );
    assert_eq!(durable.generation(&alone("api")), KillGeneration(2));
}
