//! Generations and modes after every sequence of commands, aggregators' reports, policy files and restarts.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::kill::{KillNews, KillOrder, OrderId};
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::InstanceId;

use super::*;
use crate::brain::tests;
use crate::state::tests::rows;

fn policy(kill: bool, api: &str, pattern: &str) -> Arc<Policy> {
    tests::policy(&format!(
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
    policy: Arc<Policy>,
    now: MonoTime,
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

    /// Does what [`TABLE`] says in a few words. A second passes with every act.
    fn act(&mut self, act: &str) {
        let words: Vec<&str> = act.split(' ').collect();
        let (durable, policy) = (&mut self.durable, &self.policy);
        self.now = self.now + Duration::from_secs(1);
        let now = Now {
            at: self.now,
            unix_s: Some(self.now.as_micros() as i64 / 1_000_000),
        };
        let scope = words.get(1).map_or(Scope::Fleet, |name| alone(name));
        let mut news = KillNews::default();
        match words[0] {
            "file" | "modes" | "up" | "down" => {
                let file = ["api", "p/*"].map(|entry| durable.stages[entry].file.as_str());
                let ([api, pattern], kill) = match words[0] {
                    "file" => (file, words[1] == "true"),
                    "up" => (["enforce"; 2], durable.killed_by_file),
                    "down" => (["shadow"; 2], durable.killed_by_file),
                    _ => ([words[1], words[2]], durable.killed_by_file),
                };
                self.policy = self::policy(kill, api, pattern);
                durable.on_policy(&self.policy);
            }
            "on" => drop(durable.on_command(&scope, ordered(None), policy).unwrap()),
            "on-for" => {
                let command = ordered(Some(number(&words, 1)));
                durable.on_command(&Scope::Fleet, command, policy).unwrap();
            }
            "off" => drop(durable.on_command_ends(&scope, now, policy)),
            "time" => {
                durable.count_down(self.now, number(&words, 1));
                durable.on_time(number(&words, 1), policy);
            }
            "wait" => self.now = self.now + Duration::from_secs(number(&words, 1)),
            "learn" | "claim" => {
                news.fleet = KillGeneration(number(&words, 1));
                durable.on_report(&news, words[0] == "learn", now, policy);
            }
            "learn-api" => {
                news.buckets = [(bucket("api"), KillGeneration(number(&words, 1)))].into();
                durable.on_report(&news, true, now, policy);
            }
            "order" | "end-held" => {
                let id = OrderId {
                    scope: Scope::Fleet,
                    given_at: InstanceId(number(&words, 1)),
                };
                news.fleet = KillGeneration(number(&words, 2));
                let ends_held = words[0] == "end-held";
                let age_ms = if ends_held { 0 } else { number(&words, 3) };
                let order = KillOrder {
                    generation: news.fleet,
                    age: Duration::from_millis(age_ms),
                    ends_held,
                };
                news.orders = [(id, order)].into();
                durable.on_report(&news, false, now, policy);
            }
            "pass-claim" => {
                durable.pass_claim(&Scope::Fleet, KillGeneration(number(&words, 1)));
            }
            "restart" => {
                let text = serde_json::to_string(&durable).unwrap();
                *durable = serde_json::from_str(&text).unwrap();
                durable.on_policy(policy);
            }
            other => panic!("{other}"),
        }
        // The brain does so before it computes directives.
        self.durable.settle_held(&self.policy);
    }

    fn seen(&self) -> String {
        let scopes = [Scope::Fleet, alone("api"), alone("p/1")];
        let [fleet, api, p1] = scopes.map(|scope| self.durable.generation(&scope).0);
        let buckets = [("api", "api"), ("p/*", "p/1"), ("p/*", "p/2")];
        let enforcing = buckets.into_iter().filter(|(entry, name)| {
            let stage = self.durable.stages[*entry].stage;
            self.durable.mode_of(&bucket(name), stage) == Mode::Enforce
        });
        let enforcing: Vec<&str> = enforcing.map(|(_, name)| name).collect();
        match enforcing.is_empty() {
            true => format!("{fleet} {api} {p1}: none"),
            false => format!("{fleet} {api} {p1}: {}", enforcing.join(" ")),
        }
    }
}

fn number<T: FromStr<Err: Debug>>(words: &[&str], at: usize) -> T {
    words[at].parse().unwrap()
}

/// Acts, and the generations of the fleet, `api` and `p/1` with the buckets that enforce after them. Times are in seconds.
/// `learn` is a generation without an order at a controller that has lost its state, and `claim` at any other. `order` has
/// an aggregator process, the generation of its order and its age in ms; `end-held` ends a kill without knowing an order.
const TABLE: &str = "
    => 0 0 0: api p/1 p/2
    // Each cause without the other; both survive a restart.
    on => 1 0 0: none
    on, restart => 1 0 0: none
    file true => 1 0 0: none
    file true, restart => 1 0 0: none
    // The end of a kill leaves shadow, until the modes are raised.
    on, off => 2 0 0: none
    on, off, restart => 2 0 0: none
    on, off, up => 2 0 0: none
    on, off, down, up => 2 0 0: api p/1 p/2
    file true, file false => 2 0 0: none
    file true, file false, down, up => 2 0 0: api p/1 p/2
    on, down, up, off => 2 0 0: none
    on, down, off, up => 2 0 0: api p/1 p/2
    // Both causes: the generation changes only with the first and the last of them.
    file true, on => 1 0 0: none
    on, on => 1 0 0: none
    file true, on, off => 1 0 0: none
    on, file true, file false => 1 0 0: none
    file true, on, file false, off => 2 0 0: none
    off, file false => 0 0 0: api p/1 p/2
    on, off, on => 3 0 0: none
    // A time to live: its expiry is like an end by command, and happens once.
    on-for 600, time 599 => 1 0 0: none
    on-for 600, time 600 => 2 0 0: none
    on-for 600, time 600, restart, time 0 => 2 0 0: none
    on-for 600, restart, time 600 => 2 0 0: none
    on-for 600, time -600, time 599 => 1 0 0: none
    on-for 600, file true, time 600 => 1 0 0: none
    on-for 600, on, time 600 => 1 0 0: none
    on, on-for 600, time 600 => 2 0 0: none
    on-for 600, time 600, down, up, time 0, time 700 => 2 0 0: api p/1 p/2
    // A time of day that jumps back does not lengthen a kill, also not across a restart.
    on-for 600, time 0, wait 590, time -9000 => 1 0 0: none
    on-for 600, time 0, wait 600, time -9000 => 2 0 0: none
    on-for 600, time 0, wait 570, time 0, restart, time -9000, wait 35, time -9000 => 2 0 0: none
    on-for 600, time 0, restart, time 550, wait 50, time 0 => 2 0 0: none
    // A generation without an order moves nothing here. A command moves past it, and lowers no mode if nothing
    // was killed.
    claim 7 => 0 0 0: api p/1 p/2
    claim 8 => 0 0 0: api p/1 p/2
    on, claim 2 => 1 0 0: none
    pass-claim 7, off => 8 0 0: api p/1 p/2
    pass-claim 8, off => 8 0 0: api p/1 p/2
    pass-claim 7, on => 9 0 0: none
    on, pass-claim 7, off => 8 0 0: none
    on, pass-claim 8, off => 10 0 0: none
    // The end of a kill that an aggregator held ends the orders of others, but no command given here.
    order 7 1 0, end-held 8 2 => 2 0 0: none
    order 7 1 0, order 8 1 0, end-held 9 2 => 2 0 0: none
    on, end-held 8 2 => 3 0 0: none
    on-for 600, order 7 1 0, end-held 8 2, time 600 => 4 0 0: none
    order 7 1 0, order 8 5 0, end-held 9 2 => 5 0 0: none
    // An implausible generation counts only for its order.
    order 7 18446744073709551615 0 => 1 0 0: none
    // Generations of an aggregator at a controller without state: an older one is ignored, an odd one is an order, an even
    // one moves the number only.
    learn 0 => 0 0 0: api p/1 p/2
    learn 7 => 7 0 0: none
    learn 7, learn 6, learn 5 => 7 0 0: none
    learn 7, restart, file false => 7 0 0: none
    learn 7, file true, file false => 7 0 0: none
    learn 7, off => 8 0 0: none
    learn 7, learn 8 => 8 0 0: none
    learn 7, learn 8, down, up => 8 0 0: api p/1 p/2
    learn 2 => 2 0 0: api p/1 p/2
    learn 2, down, up, learn 2, learn 1 => 2 0 0: api p/1 p/2
    on, off, down, up, learn 1 => 2 0 0: api p/1 p/2
    on, learn 2 => 3 0 0: none
    file true, learn 2 => 3 0 0: none
    file true, learn 4, file false => 6 0 0: none
    on-for 600, learn 3, time 600 => 4 0 0: none
    // Ordered and ended at an aggregator with its own generations: the modes were raised
    // without knowledge of it.
    order 7 2 0 => 2 0 0: none
    order 7 2 0, restart, up => 2 0 0: none
    order 7 2 0, down, up => 2 0 0: api p/1 p/2
    on, off, down, up, order 7 2 0 => 4 0 0: none
    on, order 7 2 0 => 3 0 0: none
    on, order 7 2 0, off => 4 0 0: none
    // An order kills with any generation, and the kill ends with its last order.
    order 7 1 0 => 1 0 0: none
    on, off, down, up, order 7 1 0 => 3 0 0: none
    order 7 1 0, restart, order 7 2 0 => 2 0 0: none
    learn 4, order 7 1 0 => 5 0 0: none
    learn 4, order 7 1 0, order 7 2 0 => 6 0 0: none
    learn 4, order 7 1 0, restart, order 7 2 0 => 6 0 0: none
    learn 4, order 7 1 0, order 8 1 0, order 7 2 0 => 5 0 0: none
    learn 4, order 7 1 0, order 8 1 0, order 7 2 0, order 8 2 0 => 6 0 0: none
    order 7 1 0, order 8 1 0, order 7 2 0 => 3 0 0: none
    learn 1, order 7 2 0 => 2 0 0: none
    order 7 1 0, on, order 7 2 0 => 3 0 0: none
    order 7 1 0, off => 2 0 0: none
    // A kill that was ended by command does not return with an aggregator that returns later,
    // and later promotions stay.
    on, off, order 7 1 1001 => 2 0 0: none
    on, off, down, up, order 7 1 3001 => 2 0 0: api p/1 p/2
    on, off, down, up, order 7 2 3001 => 2 0 0: api p/1 p/2
    order 8 1 0, off, order 7 1 5000 => 2 0 0: none
    order 8 1 0, off, order 7 1 5000, order 8 1 5000 => 2 0 0: none
    order 8 1 0, off, restart, order 7 1 4000 => 2 0 0: none
    // The order is a later one, or may be.
    on, off, order 7 1 1000 => 3 0 0: none
    on, off, down, up, order 7 1 3000 => 3 0 0: none
    on, off, restart, order 7 1 2001 => 3 0 0: none
    // The end arrived before any order was known: the buckets go to shadow with the first one.
    off, order 7 1 5000 => 2 0 0: none
    off, order 7 1 5000, down, up, order 8 1 9000 => 2 0 0: api p/1 p/2
    on, off, down, up, off, order 7 1 9000 => 4 0 0: none
    // A generation that is news shows that the switch was used again elsewhere.
    on, off, down, up, order 7 5 9000 => 6 0 0: none
    // The end of a kill by its time, or by the file, ends no order.
    on-for 2, time 2, order 7 1 9000 => 3 0 0: none
    file true, file false, order 7 1 9000 => 3 0 0: none
    // An order outlasts the time to live of a command, until it is ended where it was given, or by
    // command.
    on-for 600, order 7 1 0, time 600 => 1 0 0: none
    on-for 600, order 7 1 0, restart, time 600, time 700 => 1 0 0: none
    order 7 1 0, on-for 600, time 600 => 1 0 0: none
    on-for 600, order 7 1 0, on-for 700, time 700 => 1 0 0: none
    on-for 600, order 7 1 0, time 600, order 7 2 0 => 2 0 0: none
    on-for 600, order 7 1 0, order 8 1 0, time 600, order 7 2 0 => 3 0 0: none
    on-for 600, order 7 1 0, order 7 2 0, time 600 => 4 0 0: none
    on-for 600, order 7 1 0, learn 2, time 600 => 4 0 0: none
    on-for 600, order 7 1 0, time 600, off => 2 0 0: none
    on-for 600, order 7 1 0, off => 2 0 0: none
    // The end of the order leaves a kill by another cause.
    on, off, on, order 7 1 9000 => 3 0 0: none
    file true, off, order 7 1 9000 => 1 0 0: none
    // Only one bucket.
    on api => 0 1 0: p/1 p/2
    on api, restart => 0 1 0: p/1 p/2
    on api, off api => 0 2 0: p/1 p/2
    on api, off api, restart, up => 0 2 0: p/1 p/2
    on api, off api, modes shadow enforce, up => 0 2 0: api p/1 p/2
    on api, modes shadow enforce, up => 0 1 0: p/1 p/2
    on api, modes shadow enforce, up, off api => 0 2 0: p/1 p/2
    on api, on, off, down, up => 2 1 0: p/1 p/2
    on api, on, off api, off, down, up => 2 2 0: api p/1 p/2
    learn-api 3 => 0 3 0: p/1 p/2
    learn-api 3, learn-api 4, restart => 0 4 0: p/1 p/2
    // A bucket that shares its entry: the others enforce, and it is released when the entry is raised.
    on p/1 => 0 0 1: api p/2
    on p/1, off p/1 => 0 0 2: api p/2
    on p/1, off p/1, restart, up => 0 0 2: api p/2
    on p/1, off p/1, modes enforce canary, up => 0 0 2: api p/1 p/2
    on p/1, modes enforce canary, up, off p/1 => 0 0 2: api p/2
    on p/1, modes enforce canary, off p/1, up => 0 0 2: api p/1 p/2
    on p/1, off p/1, on, off, down, up => 2 0 2: api p/1 p/2
";

#[test]
fn any_causes_move_modes_validly() {
    for row in rows(TABLE) {
        let (acts, expected) = row.split_once("=> ").unwrap();
        let mut scene = Scene::new();
        let acts = acts.trim().split(", ").filter(|act| !act.is_empty());
        acts.for_each(|act| scene.act(act));
        assert_eq!(scene.seen(), expected, "{row}");
    }
}

#[test]
fn edited_killed_bucket_stays_in_shadow() {
    let mut scene = Scene::new();
    scene.act("on api");
    scene.act("off api");
    // Its own entry is removed, and an enforcing pattern covers it.
    let pattern =
        "buckets: { \"a*\": { limit: 1, mode: enforce } }\nrollout: { require_gates: false }\n";
    let under = |text: &str, durable: &mut DurableState| {
        let policy = tests::policy(text);
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
    let news = KillNews {
        buckets: learned,
        ..KillNews::default()
    };
    let now = Now {
        at: scene.now,
        unix_s: None,
    };
    assert!(!scene.durable.on_report(&news, true, now, &scene.policy));
    scene.act("on");
    assert_eq!(scene.durable.kill, KillGeneration(1));
}

#[test]
fn needless_ends_leave_room_for_kills() {
    let mut scene = Scene::new();
    scene.act("on api");
    scene.act("off api");
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
