//! Loom models of the interner: lookups, insertions, tombstones and reuse.

use loom::sync::Arc;
use loom::thread;

use crate::hot::directive_word::KeyWord;
use crate::hot::interner::{Interner, Lookup};

/// Makes the smallest interner with colliding names: every atomic access multiplies the
/// interleavings.
fn names() -> Arc<Interner> {
    Arc::new(Interner::new(2, 7))
}

/// Returns the id, unless another thread held the lock.
fn id(found: Lookup) -> Option<u32> {
    match found {
        Lookup::Found(word) => Some(word.id()),
        Lookup::Busy => None,
        other => panic!("{other:?}"),
    }
}

fn inserted(names: &Interner) -> Vec<String> {
    let log = names.take_log();
    let inserted = log.inserted().map(|(_, _, name)| name.to_owned()).collect();
    names.return_log(log);
    inserted
}

#[test]
fn loom_concurrent_inserts_of_one_name_agree() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || id(other.look_up(0, "a")));
        let here = id(names.look_up(0, "a"));
        let there = thread.join().unwrap();
        assert!([Some(0), None].contains(&here) && [Some(0), None].contains(&there));
        assert!(
            here.is_some() || there.is_some(),
            "one of them had the lock"
        );
        assert_eq!(id(names.look_up(0, "a")), Some(0));
        assert_eq!(names.capacity().free, 1);
    });
}

#[test]
fn loom_two_names_get_two_ids() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "a"));
        let here = names.intern(0, "b");
        let there = thread.join().unwrap();
        assert!(here.is_some() && there.is_some() && here != there);
        let mut inserted = inserted(&names);
        inserted.sort();
        assert_eq!(inserted, ["a", "b"]);
    });
}

#[test]
fn loom_found_name_shows_its_id() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "b"));
        // A lookup finds the fingerprint of a name only after its word was written.
        let known = names.known(0, "b").map(KeyWord::id);
        assert!(known.is_none_or(|id| id == 1), "{known:?}");
        assert_eq!(thread.join().unwrap(), Some(1));
        assert_eq!(inserted(&names), ["a", "b"]);
    });
}

#[test]
fn loom_revived_name_keeps_its_id() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || id(other.look_up(0, "a")));
        assert!(names.tombstone(0));
        assert!(thread.join().unwrap().is_none_or(|id| id == 0));
        assert_eq!(id(names.look_up(0, "a")), Some(0));
        assert!(names.known(0, "a").is_some());
    });
}

#[test]
fn loom_id_is_revived_or_reused() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        names.intern(0, "b");
        inserted(&names);
        assert!(names.tombstone(0) && names.release(0));
        let other = Arc::clone(&names);
        // The former name and a new one compete for the last id.
        let thread = thread::spawn(move || other.intern(0, "a"));
        let taken = names.intern(0, "c");
        let revived = thread.join().unwrap();
        assert!(
            matches!((taken, revived), (Some(0), None) | (None, Some(0))),
            "{taken:?} {revived:?}"
        );
        assert_eq!(names.capacity().free, 0);
        let [a, c] = ["a", "c"].map(|name| names.known(0, name).map(KeyWord::id));
        assert_eq!([a, c], [revived, taken]);
    });
}

#[test]
fn loom_pinned_name_is_not_tombstoned() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.pin(0, "a"));
        let tombstoned = names.tombstone(0);
        assert_eq!(thread.join().unwrap(), Some(0));
        // If it was tombstoned before, the pin revived it.
        assert!(names.known(0, "a").is_some(), "{tombstoned}");
        assert!(!names.tombstone(0));
    });
}
