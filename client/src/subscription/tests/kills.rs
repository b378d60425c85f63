//! Modes under kills of single buckets, the kill fields of reports, and the kill switch of this process
//! alone.

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

/// Applies a message with these kill generations and no directives.
fn apply_kills(held: &mut Held, kills: BTreeMap<Bucket, KillGeneration>) {
    let message = Directives { kills, buckets: Vec::new(), ..held.message(Terms::default(), &[]) };
    held.subscription.on_directives(now(), message).unwrap();
}

#[test]
fn bucket_killed_alone_enforces_again_after_a_decision_that_knows_the_generation() {
    let mut held = enforcing();
    apply_kills(&mut held, killed("web", 1));
    held.check(&[("acme", 1.0)]);
    apply_kills(&mut held, killed("api", 1));
    held.check(&[("acme", 0.0)]);
    assert_eq!(held.subscription.mode_of(&api()), Some(Mode::Shadow));
    apply_kills(&mut held, killed("api", 2));
    held.check(&[("acme", 0.0)]);
    for (known, share) in [(0, 0.0), (1, 0.0), (2, 1.0)] {
        let kill = Kill { bucket: KillGeneration(known), ..Kill::default() };
        held.direct(Terms { kill, ..limited(Mode::Enforce) }, &[("default", ratio(1.0))]);
        held.check(&[("acme", share)]);
    }
    // The claim of a decision is capped, so a later kill voids it.
    let kill = Kill { fleet: KillGeneration(99), bucket: KillGeneration(99) };
    held.direct(Terms { kill, ..limited(Mode::Enforce) }, &[("default", ratio(1.0))]);
    apply_kills(&mut held, killed("api", 4));
    held.check(&[("acme", 0.0)]);
}

#[test]
fn generations_are_reported_in_a_greeting_and_on_change_and_a_drill_at_once() {
    let mut held = enforcing();
    apply_kills(&mut held, killed("api", 2));
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
    assert_eq!(
        held.subscription.report(now()).kills,
        killed("api", 2),
        "a new stream starts with all generations"
    );
    let liar = Directives { kills: killed("web", u64::MAX), ..held.message(Terms::default(), &[]) };
    assert!(matches!(held.subscription.on_directives(now(), liar), Err(StaleDirective::KillJump { .. })));
}

#[test]
fn kill_is_saved_at_once_and_voids_the_directives_saved_before_it() {
    let mut held = enforcing();
    let (version, before) = held.subscription.unsaved().unwrap();
    held.subscription.on_saved(version);
    assert_eq!(held.subscription.unsaved_kills(), None);
    apply_kills(&mut held, killed("api", 1));
    assert!(held.subscription.unsaved_kills().is_some(), "from the old file the next process would enforce");
    let (version, after) = held.subscription.unsaved().unwrap();
    held.subscription.on_saved(version);
    assert_eq!(held.subscription.unsaved_kills(), None);
    // The next process, from either file, without a connection.
    for (kept, share) in [(before, 1.0), (after, 0.0)] {
        let mut next = Held::new();
        next.subscription.restore(kept);
        next.check(&[("acme", share)]);
        assert_eq!(next.subscription.unsaved_kills(), None);
    }
}

#[test]
fn kill_switch_of_this_process_alone_only_observes() {
    let mut held = enforcing();
    assert!(held.subscription.observe(true) && !held.subscription.observe(true));
    held.check(&[("acme", 0.0)]);
    held.direct(limited(Mode::Enforce), &[("default", ratio(1.0))]);
    held.check(&[("acme", 0.0)]);
    assert_eq!(held.subscription.mode_of(&api()), Some(Mode::Shadow));
    assert_eq!(held.subscription.report(now()).kill, KillGeneration(0), "it is not reported");
    assert!(held.subscription.observe(false));
    held.check(&[("acme", 1.0)]);
}
