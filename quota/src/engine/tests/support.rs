//! Helpers of the engine's tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use plimsoll_core::quota::{QuotaRate, Refill};
use smallvec::smallvec;

use crate::args::Durability;
use crate::engine::{Engine, Settings};
use crate::operation::{Answer, BucketName, Demand, Operation, Unavailable};
use crate::store::{Committed, DatabaseStore, Row, RowKey, Rows, Sizes, Store, StoreError};

pub(super) const NOW: u64 = 1_800_000_000_000;
pub(super) const INTERVAL: Durability = Durability::Interval(Duration::from_millis(100));

pub(super) fn settings(data: &Path, durability: Durability) -> Settings {
    Settings {
        data: data.to_owned(),
        durability,
        cache_bytes: 16 << 20,
    }
}

pub(super) fn open(data: &Path, durability: Durability) -> Engine {
    Engine::open(&settings(data, durability)).unwrap()
}

pub(super) fn bucket(key: &str, max: u64) -> BucketName<'_> {
    BucketName {
        key: key.as_bytes(),
        rate: QuotaRate::new(max, max, 1_000_000_000).unwrap(),
    }
}

pub(super) fn reduce(bucket: BucketName<'_>, take: u64) -> Operation<'_> {
    Operation::Reduce {
        bucket,
        at_ms: None,
        take,
        refill: Refill::OnPhase,
    }
}

pub(super) fn demand(bucket: BucketName<'_>, least: u64, wanted: u64) -> Demand<'_> {
    Demand {
        bucket,
        least,
        wanted,
    }
}

pub(super) async fn run_all(
    engine: &Engine,
    operations: &[Operation<'_>],
) -> Vec<Result<Answer, Unavailable>> {
    let mut answers = Vec::new();
    engine.run(NOW, operations, &mut answers).await;
    assert_eq!(answers.len(), operations.len());
    answers
}

pub(super) async fn run(engine: &Engine, operation: Operation<'_>) -> Result<Answer, Unavailable> {
    run_all(engine, &[operation]).await.remove(0)
}

pub(super) async fn tokens(engine: &Engine, bucket: BucketName<'_>) -> u64 {
    let Ok(Answer::Tokens(tokens)) = run(engine, reduce(bucket, 0)).await else {
        panic!("no answer")
    };
    tokens
}

pub(super) async fn take(engine: &Engine, demands: &[Demand<'_>]) -> Vec<u64> {
    let mut operation = smallvec![];
    operation.extend(demands.iter().copied());
    let Ok(Answer::Taken(taken)) = run(engine, Operation::Take(operation)).await else {
        panic!("no answer")
    };
    taken.iter().map(|taken| taken.granted).collect()
}

/// A store with commits and reads that fail or hang on demand.
#[derive(Clone, Debug)]
pub(super) struct Faulty(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: DatabaseStore,
    faults: Faults,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    commits_fail: AtomicBool,
    syncs: Mutex<Option<Sync>>,
    reads_fail: AtomicBool,
    settlings_fail: AtomicBool,
    hangs: Mutex<bool>,
    released: Condvar,
    commits: AtomicU64,
    reads: AtomicU64,
    reopened: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Fails,
    /// Writes, and fails once this setting changes.
    FailsLate,
    Panics,
}

impl Faults {
    pub(super) fn syncs(&self, end: Option<Sync>) {
        *self.0.syncs.lock().unwrap() = end;
    }

    pub(super) fn reopened(&self) -> u64 {
        self.0.reopened.load(Ordering::Acquire)
    }

    pub(super) fn commits_fail(&self, fail: bool) {
        self.0.commits_fail.store(fail, Ordering::Release);
        self.settlings_fail(fail);
    }

    pub(super) fn settlings_fail(&self, fail: bool) {
        self.0.settlings_fail.store(fail, Ordering::Release);
    }

    pub(super) fn reads_fail(&self, fail: bool) {
        self.0.reads_fail.store(fail, Ordering::Release);
    }

    pub(super) fn hang(&self, hangs: bool) {
        *self.0.hangs.lock().unwrap() = hangs;
        self.0.released.notify_all();
    }

    pub(super) fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::Acquire)
    }

    pub(super) fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Acquire)
    }

    fn wait(&self) {
        let hangs = self.0.hangs.lock().unwrap();
        drop(self.0.released.wait_while(hangs, |hangs| *hangs).unwrap());
    }
}

impl Store for Faulty {
    fn get(&self, key: &[u8]) -> Result<Option<Row>, StoreError> {
        self.0.faults.0.reads.fetch_add(1, Ordering::AcqRel);
        self.0.faults.wait();
        if self.0.faults.0.reads_fail.load(Ordering::Acquire) {
            return Err(StoreError::Failed("injected".to_owned()));
        }
        self.0.store.get(key)
    }

    fn settle(&self, rows: &Rows) -> Result<(), StoreError> {
        self.0.faults.wait();
        if self.0.faults.0.settlings_fail.load(Ordering::Acquire) {
            return Err(StoreError::Failed("injected".to_owned()));
        }
        self.0.store.settle(rows)
    }

    fn forget(&self, number: u64) -> Result<(), StoreError> {
        self.0.store.forget(number)
    }

    fn commit(
        &self,
        number: u64,
        rows: &Rows,
        pause: &mut dyn FnMut(),
    ) -> Result<Committed, StoreError> {
        self.0.faults.wait();
        if self.0.faults.0.commits_fail.load(Ordering::Acquire) {
            return Err(StoreError::Failed("injected".to_owned()));
        }
        let end = *self.0.faults.0.syncs.lock().unwrap();
        match end {
            Some(Sync::Fails) => return Err(StoreError::Failed("injected".to_owned())),
            Some(Sync::FailsLate) => {
                self.0.store.commit(number, rows, pause)?;
                self.0.faults.0.commits.fetch_add(1, Ordering::AcqRel);
                while *self.0.faults.0.syncs.lock().unwrap() == Some(Sync::FailsLate) {
                    std::thread::yield_now();
                }
                return Err(StoreError::Failed("injected".to_owned()));
            }
            Some(Sync::Panics) => panic!("injected"),
            None => {}
        }
        self.0.faults.0.commits.fetch_add(1, Ordering::AcqRel);
        self.0.store.commit(number, rows, pause)
    }

    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, StoreError> {
        self.0.store.scan(prefix, after, limit)
    }

    fn reopen(&self) -> Result<(), StoreError> {
        if self.0.faults.0.commits_fail.load(Ordering::Acquire) {
            return Err(StoreError::Failed("injected".to_owned()));
        }
        self.0.faults.0.reopened.fetch_add(1, Ordering::AcqRel);
        self.0.store.reopen()
    }

    fn sweep(&self) -> Result<(), StoreError> {
        self.0.store.sweep()
    }

    fn disk_bytes(&self) -> u64 {
        self.0.faults.wait();
        self.0.store.disk_bytes()
    }
}

pub(super) fn faulty(settings: &Settings) -> (Engine, Faults) {
    let clock = Arc::new(AtomicU64::new(0));
    let sizes = Sizes {
        blocks: 4 << 20,
        memtable: 1 << 20,
        log: 1 << 20,
    };
    let (store, number) = DatabaseStore::open(&settings.data, clock.clone(), sizes).unwrap();
    let faults = Faults::default();
    let store = Faulty(Arc::new(Inner {
        store,
        faults: faults.clone(),
    }));
    (
        Engine::start(settings, Box::new(store), clock, number).unwrap(),
        faults,
    )
}

pub(super) async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    for _ in 0..2_000 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
