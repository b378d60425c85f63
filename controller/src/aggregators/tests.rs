//! How a source's rates follow its reports, and its silence.

use super::*;
use plimsoll_core::report::{Counts, Entry, Tally};

const TICK: Duration = Duration::from_millis(500);

fn place(name: &str) -> Place {
    (Zone::new(name).unwrap(), Name::new("aggregator").unwrap())
}

fn sources(names: &[&str]) -> Sources {
    let mut sources = Sources::default();
    for (name, instance) in names.iter().zip(1..) {
        assert_eq!(sources.greet(MonoTime::ZERO, place(name), InstanceId(instance), BTreeMap::new()), None);
    }
    sources
}

/// So much of key 0 came in so long, a quarter of it refused.
fn enter(sources: &mut Sources, name: &str, span_ms: u64, offered: u64) {
    let counts = Counts { offered, dropped: offered / 4, ..Counts::ZERO };
    let delta = Tally { counts, late: Counts::ZERO };
    let entry = Entry { own: Some(KeyId(0)), delta, pedigree: Pedigree::Observed };
    let span = Some(Duration::from_millis(span_ms));
    let entries = if offered > 0 { vec![entry] } else { Vec::new() };
    let report = Report { time: Some(MonoTime::ZERO), ..Report::default() };
    sources.enter(&place(name), &report, &Entered { span, entries, ..Entered::default() });
}

fn tick(sources: &mut Sources) -> Vec<Beat> {
    sources.on_tick(TICK, &Parameters::default());
    sources.clear_fresh();
    sources.iter().map(|(_, source)| source.beat()).collect()
}

fn rate(sources: &Sources, name: &str) -> f64 {
    sources.get(&place(name)).unwrap().rate(KeyId(0))
}

#[test]
fn a_rate_is_taken_by_the_childs_own_span_and_what_is_absent_fell() {
    let mut sources = sources(&["a"]);
    for (span, offered, expected) in [(500, 500, 1_000.0), (250, 500, 2_000.0), (500, 0, 800.0)] {
        enter(&mut sources, "a", span, offered);
        sources.on_tick(TICK, &Parameters::default());
        let source = sources.get(&place("a")).unwrap();
        let span = Duration::from_millis(span);
        assert_eq!(source.beat(), Beat::Counted { span, gap: span });
        assert_eq!(source.passed(KeyId(0)), (offered - offered / 4) as f64);
        assert!((rate(&sources, "a") - expected).abs() < 1e-9, "{}", rate(&sources, "a"));
        sources.clear_fresh();
    }
}

#[test]
fn a_silence_is_accounted_for_once_from_its_beginning() {
    let mut sources = sources(&["a", "b"]);
    let mut silent = Duration::ZERO;
    for step in 1..=10 {
        enter(&mut sources, "a", 500, 100);
        if step == 1 {
            enter(&mut sources, "b", 500, 100);
        }
        sources.on_tick(TICK, &Parameters::default());
        let beat = sources.get(&place("b")).unwrap().beat();
        match step {
            1 => assert_eq!(beat, Beat::Counted { span: TICK, gap: TICK }),
            2 | 3 => assert_eq!(beat, Beat::Idle, "it may only be late"),
            4 => assert_eq!(beat, Beat::Silent(3 * TICK), "from when it was last heard"),
            _ => assert_eq!(beat, Beat::Silent(TICK)),
        }
        if let Beat::Silent(more) = beat {
            silent += more;
        }
        sources.clear_fresh();
    }
    assert_eq!(silent, 9 * TICK);
    assert_eq!(rate(&sources, "b"), 200.0, "what it offered is held");
}

#[test]
fn while_nobody_is_heard_nobody_ages() {
    let mut sources = sources(&["a", "b"]);
    tick(&mut sources);
    for _ in 0..1_000 {
        assert_eq!(tick(&mut sources), [Beat::Idle, Beat::Idle]);
    }
    assert!(sources.forget(false).is_empty());
}

#[test]
fn nothing_that_was_held_means_anything_after_a_silence() {
    let mut sources = sources(&["a"]);
    enter(&mut sources, "a", 500, 5_000);
    tick(&mut sources);
    assert_eq!(rate(&sources, "a"), 10_000.0);
    // Smoothing would leave some of the 10,000 a second.
    enter(&mut sources, "a", 1_500, 1_500);
    sources.on_tick(TICK, &Parameters::default());
    assert_eq!(rate(&sources, "a"), 1_000.0);
}

/// Smoothed over all of the time, and not taken for the first word after a silence.
#[test]
fn reports_that_were_held_up_on_their_way_are_no_silence() {
    let mut sources = sources(&["a"]);
    enter(&mut sources, "a", 500, 5_000);
    tick(&mut sources);
    (0..3).for_each(|_| enter(&mut sources, "a", 500, 500));
    sources.on_tick(TICK, &Parameters::default());
    assert_eq!(sources.get(&place("a")).unwrap().beat(), Beat::Counted { span: 3 * TICK, gap: TICK });
    let left = 0.4_f64.powi(3) * 9_000.0;
    assert!((rate(&sources, "a") - (1_000.0 + left)).abs() < 1e-6, "{}", rate(&sources, "a"));
}

#[test]
fn what_a_place_lived_on_is_what_it_brought_first() {
    let mut sources = Sources::default();
    let bucket = Bucket::new("api").unwrap();
    for (instance, hold) in [(1, Some(600.0)), (1, Some(750.0)), (2, None)] {
        let holds = hold.map(|hold| (bucket.clone(), Rate::new(hold).unwrap())).into_iter().collect();
        sources.greet(MonoTime::ZERO, place("a"), InstanceId(instance), holds);
        let source = sources.get(&place("a")).unwrap();
        assert_eq!(source.lived_on()[&bucket], Rate::new(600.0).unwrap());
        assert_eq!(source.holds().get(&bucket).map(|hold| hold.per_second()), hold);
    }
}

#[test]
fn a_new_process_takes_over_the_rates_and_names_the_one_it_replaces() {
    let mut sources = sources(&["a"]);
    enter(&mut sources, "a", 500, 500);
    sources.on_tick(TICK, &Parameters::default());
    sources.serve(|_| true);
    let replaced = sources.greet(MonoTime::ZERO, place("a"), InstanceId(7), BTreeMap::new());
    assert_eq!(replaced, Some(InstanceId(1)));
    assert_eq!(rate(&sources, "a"), 1_000.0);
    assert!(sources.get(&place("a")).unwrap().is_served());
    assert_eq!(sources.greet(MonoTime::ZERO, place("a"), InstanceId(7), BTreeMap::new()), None);
}

#[test]
fn one_of_which_nothing_counts_any_more_is_forgotten_unless_it_is_kept() {
    let mut sources = sources(&["a", "b"]);
    for _ in 0..122 {
        enter(&mut sources, "a", 500, 100);
        tick(&mut sources);
    }
    assert!(sources.forget(true).is_empty());
    assert_eq!(sources.forget(false), [place("b")]);
    assert_eq!(sources.len(), 1);
}
