//! Loom models of the interner: lookups, insertions, tombstones and reuse under every interleaving.

use loom::sync::Arc;
use loom::thread;

use super::{Interner, Lookup};

/// Makes the smallest interner whose names can collide: every atomic access multiplies the interleavings.
fn names() -> Arc<Interner> {
    Arc::new(Interner::new(2, 7))
}

/// Returns the id, unless another thread held the write lock.
fn id(found: Lookup) -> Option<u32> {
    match found {
        Lookup::Id(id) => Some(id),
        Lookup::Busy => None,
        other => panic!("{other:?}"),
    }
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
        assert!(here.is_some() || there.is_some(), "one of them had the write lock");
        assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
        assert_eq!(names.capacity().free, 1);
    });
}

#[test]
fn loom_concurrent_inserts_of_two_names_get_two_ids() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "a"));
        let here = names.intern(0, "b");
        let there = thread.join().unwrap();
        assert!(here.is_some() && there.is_some() && here != there);
        let mut inserted = Vec::new();
        names.drain_inserted(|id| {
            inserted.push(names.read(id).unwrap().1);
            true
        });
        inserted.sort();
        assert_eq!(inserted, ["a", "b"]);
    });
}

#[test]
fn loom_lookup_sees_a_whole_name_or_none() {
    loom::model(|| {
        let names = names();
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || other.intern(0, "two-words"));
        // A lookup compares exactly, and the reader of an inserted id reads the whole name.
        let mut inserted = 0;
        names.drain_inserted(|id| {
            assert_eq!(names.read(id), Some((0, "two-words".to_owned())));
            inserted += 1;
            true
        });
        assert!(id(names.look_up(0, "two-words")).is_none_or(|id| id == 0));
        assert_eq!(thread.join().unwrap(), Some(0));
        assert!(inserted <= 1);
    });
}

#[test]
fn loom_tombstoned_name_is_revived_with_its_id() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        let other = Arc::clone(&names);
        let thread = thread::spawn(move || id(other.look_up(0, "a")));
        assert!(names.tombstone(0));
        assert!(thread.join().unwrap().is_none_or(|id| id == 0));
        assert_eq!(names.look_up(0, "a"), Lookup::Id(0));
        assert!(!names.is_tombstone(0));
    });
}

#[test]
fn loom_id_is_revived_or_reused_but_not_both() {
    loom::model(|| {
        let names = names();
        names.intern(0, "a");
        names.intern(0, "b");
        names.drain_inserted(|_| true);
        assert!(names.tombstone(0) && names.release(0));
        let other = Arc::clone(&names);
        // The former name and a new one compete for the last id.
        let thread = thread::spawn(move || other.intern(0, "a"));
        let taken = names.intern(0, "c");
        let revived = thread.join().unwrap();
        assert!(matches!((taken, revived), (Some(0), None) | (None, Some(0))), "{taken:?} {revived:?}");
        assert_eq!(names.capacity().free, 0);
        let name = names.read(0).unwrap().1;
        assert_eq!(name, if taken.is_some() { "c" } else { "a" });
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
        assert!(!names.is_tombstone(0), "{tombstoned}");
        assert!(!names.tombstone(0));
    });
}
