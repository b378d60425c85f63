//! Kills and power cuts at chosen moments: the journal loses its end, and tables that are on disk
//! stay.

use super::*;

struct Moment {
    journal: PathBuf,
    used: usize,
    synced: Vec<u8>,
}

impl Moment {
    fn of(data: &Path) -> Self {
        let journal = journals(data).pop().unwrap();
        Self {
            used: used(&fs::read(&journal).unwrap()),
            journal,
            synced: fs::read(data.join("synced")).unwrap(),
        }
    }

    /// Simulates a power cut as if nothing had been synchronised since.
    fn cut(&self, data: &Path) {
        let mut bytes = fs::read(&self.journal).unwrap();
        bytes[self.used..].fill(0);
        fs::write(&self.journal, bytes).unwrap();
        fs::write(data.join("synced"), &self.synced).unwrap();
    }
}

fn tokens(store: &DatabaseStore, number: u64) -> Option<u64> {
    store.get(&key(number)).unwrap().map(|row| match row.state {
        State::Tokens(balance) => balance.tokens,
        State::Throttle(_) => unreachable!(),
    })
}

#[test]
fn cut_commit_number_stays_unused() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    commit(&store, 1, 0..5_000, row(9, 1));
    let before = Moment::of(data.path());
    commit(&store, 2, 0..5_000, row(8, 1));
    drop(store);
    let half = before.used.midpoint(Moment::of(data.path()).used);
    Moment {
        used: half,
        ..before
    }
    .cut(data.path());
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(
        (number, tokens(&store, 0), tokens(&store, 4_999)),
        (2, Some(8), Some(9))
    );
    commit(&store, 3, 0..1, row(7, 1));
    drop(store);
    let (store, number) = open(data.path()).unwrap();
    assert_eq!((number, tokens(&store, 0), store.parts()), (3, Some(7), 0));
}

#[test]
fn commit_without_a_journal_is_followed() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    commit(&store, 1, 0..3, row(9, 1));
    let before = Moment::of(data.path());
    commit(&store, 2, 0..3, row(8, 1));
    store.flush(true).unwrap();
    drop(store);
    before.cut(data.path());
    for commits in 2..6 {
        let (store, number) = open(data.path()).unwrap();
        assert_eq!((number, tokens(&store, 2)), (commits, Some(10 - commits)));
        commit(&store, commits + 1, 0..3, row(9 - commits, 1));
    }
}

#[test]
fn buckets_are_durable_before_the_log_forgets() {
    for is_log in [false, true] {
        let data = tempfile::tempdir().unwrap();
        let (store, _) = open(data.path()).unwrap();
        let rows = commit(&store, 1, 0..3, row(9, 1));
        store.settle(&rows).unwrap();
        let before = Moment::of(data.path());
        store.forget(1).unwrap();
        assert_eq!(store.parts(), 0);
        store.flush(is_log).unwrap();
        drop(store);
        before.cut(data.path());
        if is_log {
            // A power cut cannot cause this: the journal was synchronised in between.
            assert!(refusal(data.path()).contains("balances that left the log are missing"));
        } else {
            let (store, number) = open(data.path()).unwrap();
            assert_eq!((number, tokens(&store, 2), store.parts()), (1, Some(9), 0));
        }
    }
}

#[test]
fn part_that_comes_back_is_not_replayed() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..3, row(9, 1));
    write(&store, 2, 0..3, row(8, 1));
    store.bring_back(1, &[(&key(0), &[])]).unwrap();
    drop(store);
    let (store, _) = open(data.path()).unwrap();
    assert_eq!((tokens(&store, 0), store.parts()), (Some(8), 0));
}
