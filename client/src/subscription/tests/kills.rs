//! What is left of a mode where single buckets were killed, what is reported of it, and this process's own switch.

use super::*;
use plimsoll_core::kill::drill::Drill;

fn api() -> Bucket {
    Bucket::new("api").unwrap()
}

fn killed(name: &str, generation: u64) -> BTreeMap<Bucket, KillGeneration> {
    [(Bucket::new(name).unwrap(), KillGeneration(generation))].into()
}

fn enforcing() -> Held {
    let mut held = Held::new();
    held.direct(limited(Mode::Enforce), &[("default", ratio(1.0))]);
    held
}

/// A message that says nothing but this of kills.
fn says(held: &mut Held, kills: BTreeMap<Bucket, KillGeneration>) {
    let message = Directives { kills, buckets: Vec::new(), ..held.message(Terms::default(), &[]) };
    held.subscription.on_directives(now(), message).unwrap();
}

#[test]
fn a_bucket_is_killed_alone_and_comes_back_by_a_decision_that_knows_of_it() {
    let mut held = enforcing();
    says(&mut held, killed("web", 1));
    held.check(&[("acme", 1.0)]);
    says(&mut held, killed("api", 1));
    held.check(&[("acme", 0.0)]);
    assert_eq!(held.subscription.mode_of(&api()), Some(Mode::Shadow));
    says(&mut held, killed("api", 2));
    held.check(&[("acme", 0.0)]);
    for (known, share) in [(0, 0.0), (1, 0.0), (2, 1.0)] {
        let kill = Kill { bucket: KillGeneration(known), ..Kill::default() };
        held.direct(Terms { kill, ..limited(Mode::Enforce) }, &[("default", ratio(1.0))]);
        held.check(&[("acme", share)]);
    }
    // Whatever a decision claims to know, a later kill is later.
    let kill = Kill { fleet: KillGeneration(99), bucket: KillGeneration(99) };
    held.direct(Terms { kill, ..limited(Mode::Enforce) }, &[("default", ratio(1.0))]);
    says(&mut held, killed("api", 4));
    held.check(&[("acme", 0.0)]);
}

#[test]
fn what_is_held_is_told_in_a_greeting_and_when_it_changed_and_a_drill_is_answered_at_once() {
    let mut held = enforcing();
    says(&mut held, killed("api", 2));
    assert_eq!(held.subscription.report(now()).kills, killed("api", 2));
    assert!(held.subscription.report(now()).kills.is_empty());
    assert!(!held.subscription.is_report_due());
    let drill = Directives { drill: Drill(5), buckets: Vec::new(), ..held.message(Terms::default(), &[]) };
    held.subscription.on_directives(now(), drill).unwrap();
    assert!(held.subscription.is_report_due());
    assert_eq!(held.subscription.report(now()).drill, Drill(5));
    assert!(!held.subscription.is_report_due());
    held.check(&[("acme", 0.0)]);
    held.subscription.on_open(now());
    assert_eq!(held.subscription.report(now()).kills, killed("api", 2), "a new stream begins whole");
    let liar = Directives { kills: killed("web", u64::MAX), ..held.message(Terms::default(), &[]) };
    assert!(matches!(held.subscription.on_directives(now(), liar), Err(Stale::KillJump { .. })));
}

#[test]
fn a_turn_of_the_switch_is_to_be_kept_at_once_and_what_was_kept_before_it_is_void() {
    let mut held = enforcing();
    let (version, before) = held.subscription.news_to_keep().unwrap();
    held.subscription.on_kept(version);
    assert_eq!(held.subscription.kills_to_keep(), None);
    says(&mut held, killed("api", 1));
    assert!(held.subscription.kills_to_keep().is_some(), "by the file a next process would refuse");
    let (version, after) = held.subscription.news_to_keep().unwrap();
    held.subscription.on_kept(version);
    assert_eq!(held.subscription.kills_to_keep(), None);
    // The next process, from either file, with nobody to ask.
    for (kept, share) in [(before, 1.0), (after, 0.0)] {
        let mut next = Held::new();
        next.subscription.restore(kept);
        next.check(&[("acme", share)]);
        assert_eq!(next.subscription.kills_to_keep(), None);
    }
}

#[test]
fn this_process_alone_only_observes_as_long_as_its_machine_says_so() {
    let mut held = enforcing();
    assert!(held.subscription.observe(true) && !held.subscription.observe(true));
    held.check(&[("acme", 0.0)]);
    held.direct(limited(Mode::Enforce), &[("default", ratio(1.0))]);
    held.check(&[("acme", 0.0)]);
    assert_eq!(held.subscription.mode_of(&api()), Some(Mode::Shadow));
    assert_eq!(held.subscription.report(now()).kill, KillGeneration(0), "nobody else hears of it");
    assert!(held.subscription.observe(false));
    held.check(&[("acme", 1.0)]);
}
