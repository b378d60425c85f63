//! Looking up, entering, resting and giving ids to others, under every order of events.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// As few ids as can collide: every access of an atomic is a point where another thread may run.
fn names() -> Arc<Names> {
    Arc::new(Names::new(2, 7))
}

/// The id, where the request did not meet another one that was entering a name.
fn id(found: Found) -> Option<u32> {
    match found {
        Found::Id(id) => Some(id),
        Found::Busy => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn loom_two_that_enter_one_name_agree() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || id(other.look_up(0, "a")));
        let here = id(names.look_up(0, "a"));
        let there = thread.join().unwrap();
        assert!([Some(0), None].contains(&here) && [Some(0), None].contains(&there));
        assert!(here.is_some() || there.is_some(), "one of them had the claim");
        assert_eq!(names.look_up(0, "a"), Found::Id(0));
        assert_eq!(names.room().free, 1);
    });
}

#[test]
fn loom_two_that_enter_two_names_get_two_ids() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "a"));
        let here = names.intern(0, "b");
        let there = thread.join().unwrap();
        assert!(here.is_some() && there.is_some() && here != there);
        let mut entered = Vec::new();
        names.entered(|id| {
            entered.push(names.read(id).unwrap().1);
            true
        });
        entered.sort();
        assert_eq!(entered, ["a", "b"]);
    });
}

#[test]
fn loom_a_name_is_found_whole_or_not_at_all() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "two-words"));
        // Whatever is found is found by an exact compare, and whoever reads what entered reads all of it.
        let mut entered = 0;
        names.entered(|id| {
            assert_eq!(names.read(id), Some((0, "two-words".to_owned())));
            entered += 1;
            true
        });
        assert!(id(names.look_up(0, "two-words")).is_none_or(|id| id == 0));
        assert_eq!(thread.join().unwrap(), Some(0));
        assert!(entered <= 1);
    });
}

#[test]
fn loom_a_name_that_rests_wakes_with_its_id() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || id(other.look_up(0, "a")));
        assert!(names.rest(0));
        assert!(thread.join().unwrap().is_none_or(|id| id == 0));
        assert_eq!(names.look_up(0, "a"), Found::Id(0));
        assert!(!names.is_resting(0));
    });
}

#[test]
fn loom_an_id_is_woken_or_taken_by_another_but_not_both() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        names.intern(0, "b");
        names.entered(|_| true);
        assert!(names.rest(0) && names.offer(0));
        let other = Arc::clone(&names);
        // Its own name, and another one that needs the last id there is.
        let thread = thread::spawn(move || other.intern(0, "a"));
        let taken = names.intern(0, "c");
        let woken = thread.join().unwrap();
        assert!(matches!((taken, woken), (Some(0), None) | (None, Some(0))), "{taken:?} {woken:?}");
        assert_eq!(names.room().free, 0);
        let name = names.read(0).unwrap().1;
        assert_eq!(name, if taken.is_some() { "c" } else { "a" });
    });
}

#[test]
fn loom_a_pinned_name_does_not_rest() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.pin(0, "a"));
        let rested = names.rest(0);
        assert_eq!(thread.join().unwrap(), Some(0));
        // When it rested before, the pin woke it.
        assert!(!names.is_resting(0), "{rested}");
        assert!(!names.rest(0));
    });
}
