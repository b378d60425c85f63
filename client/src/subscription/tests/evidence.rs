//! What a limiter tells of each bucket: once, by the mode and the side that held all the while.

use super::*;
use crate::responses::Ending;
use plimsoll_core::report::{CohortKey, Outcomes, Side};

const MS: Duration = Duration::from_millis(1);

fn pass(held: &mut Held, ms: u64) {
    held.now = MonoTime::from_micros(held.now.as_micros() + 1_000 * ms);
}

/// Everything that the next report tells.
fn told(held: &mut Held) -> Vec<(CohortKey, Outcomes)> {
    pass(held, 500);
    let report = held.subscription.report(held.now);
    report.evidence.after(0).map(|(stand, outcomes)| (stand.clone(), outcomes.clone())).collect()
}

fn canary(percent: f64) -> Terms {
    let cohort = Cohort { percent: Percent::new(percent).unwrap(), salt: 0 };
    Terms { cohort, ..limited(Mode::Canary) }
}

fn ask(held: &mut Held, requests: usize) -> usize {
    (0..requests).filter(|_| held.admit("acme") != Verdict::Admit).count()
}

#[test]
fn what_was_decided_is_told_once_by_mode_and_side() {
    for (terms, side) in [
        (limited(Mode::Shadow), Side::Control),
        (canary(0.0), Side::Control),
        (canary(100.0), Side::Canary),
        (limited(Mode::Enforce), Side::Control),
    ] {
        let mut held = Held::new();
        held.direct(terms, &[("default", ratio(0.3))]);
        assert_eq!(told(&mut held), []);
        let refused = ask(&mut held, 1_000) as u64;
        let all = told(&mut held);
        let [(stand, outcomes)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((stand.bucket.as_str(), stand.mode, stand.side), ("api", terms.mode, side));
        assert_eq!((outcomes.offered, outcomes.refused), (1_000, refused));
        let would_dropped = if refused == 0 { 300 } else { 0 };
        assert!(outcomes.would_dropped.abs_diff(would_dropped) < 20, "{outcomes:?}");
        assert_eq!(told(&mut held), [], "it was told");
    }
}

#[test]
fn what_a_change_of_mode_or_side_has_mixed_is_not_told() {
    let mut held = Held::new();
    held.direct(canary(0.0), &[("default", ratio(0.3))]);
    told(&mut held);
    for terms in [canary(100.0), limited(Mode::Enforce), limited(Mode::Shadow), canary(0.0)] {
        ask(&mut held, 50);
        held.direct(terms, &[("default", ratio(0.3))]);
        ask(&mut held, 50);
        assert_eq!(told(&mut held), [], "some of it was before");
        ask(&mut held, 50);
        assert_eq!(told(&mut held)[0].1.offered, 50);
    }
    // A kill is a change of mode.
    ask(&mut held, 50);
    held.seq += 1;
    let kill = Directives { seq: held.seq, kill: KillGeneration(1), ..Directives::default() };
    held.subscription.on_directives(held.now, Directives { epoch: Some(Epoch(5)), ..kill }).unwrap();
    assert_eq!(told(&mut held), []);
    ask(&mut held, 50);
    assert_eq!(told(&mut held)[0].0.mode, Mode::Shadow);
}

#[test]
fn it_is_told_twice_a_second_at_most_and_only_to_who_listens() {
    let mut held = Held::new();
    held.direct(limited(Mode::Shadow), &[("default", ratio(0.0))]);
    told(&mut held);
    ask(&mut held, 10);
    pass(&mut held, 499);
    assert!(held.subscription.report(held.now).evidence.is_empty());
    held.subscription.on_open(held.now);
    assert_eq!(told(&mut held), [], "nobody has answered on this stream");
    held.subscription.strands.get_mut(&ONLY).unwrap().outbox.on_answer(InstanceId(2));
    assert_eq!(told(&mut held)[0].1.offered, 10);
}

#[test]
fn what_nobody_has_spoken_of_is_not_told_and_responses_are() {
    let mut held = Held::new();
    ask(&mut held, 10);
    assert_eq!(told(&mut held), []);
    held.direct(canary(100.0), &[("default", ratio(0.0))]);
    told(&mut held);
    assert_eq!(held.table.responses.side(0), Side::Canary);
    for (took, ending) in [(MS * 7, Ending::Status(200)), (MS * 9, Ending::Status(500))] {
        held.table.responses.ended(0, Side::Canary, took, ending);
    }
    let all = told(&mut held);
    assert_eq!((all[0].1.failed, all[0].1.latency.samples(), all[0].1.offered), (1, 2, 0));
    assert_eq!(told(&mut held), []);
    let watched = held.subscription.watched();
    let canary = watched.iter().find(|watched| watched.side == Side::Canary).unwrap();
    assert_eq!((canary.bucket.as_str(), canary.durations.count), ("api", 2), "metrics forget nothing");
}
