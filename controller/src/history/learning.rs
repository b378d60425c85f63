//! Writes the history minute by minute, off the brain's lock, and tells the brain what it may learn from. A disk that
//! fails stops the learning and nothing else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_policy::Prometheus;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::shared::Shared;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::brain::Brain;
use crate::history::MinuteSamples;
use crate::history::store::{HistoryError, HistoryStore, Kept};

/// How often it is looked whether a minute is over.
const PERIOD: Duration = Duration::from_secs(1);
/// Of so many failures in a row one is logged: they come once a minute.
const LOGGED_EVERY: u64 = 60;

/// The history on disk, as long as it can be used, and whoever writes it.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    state: PathBuf,
    /// `None` after a failure: then it is opened again.
    store: Option<HistoryStore>,
    /// The brain has what was kept.
    restored: bool,
    /// Failures since the last write that went well.
    failures: u64,
}

impl Learner {
    /// Opens the history in the state directory and gives the brain what is in it. Whatever is wrong with it is logged: the
    /// controller starts all the same.
    pub(crate) fn open(state: &Path, brain: &mut Brain) -> Self {
        let mut inner = Inner { state: state.to_owned(), store: None, restored: false, failures: 0 };
        match inner.open_store() {
            Ok(kept) => inner.restore(kept, brain, MonoTime::ZERO),
            Err(error) => {
                brain.on_minute_lost();
                inner.fail(&error);
            }
        }
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Runs `f` on the history on disk; blocks.
    ///
    /// # Errors
    /// When it cannot be used now, or `f` says so; then it is opened again.
    pub(crate) fn with_store<R>(
        &self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&mut HistoryStore) -> Result<R, String>,
    ) -> Result<R, String> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).with_store(brain, f)
    }

    /// Keeps the answer to a query for the next start; blocks.
    pub(crate) fn keep_answer(&self, brain: &Shared<Brain>, source: &Prometheus, rate: Rate) {
        if let Err(error) =
            self.with_store(brain, |store| store.write_answer(&source.url, &source.query, rate))
        {
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).fail(&error);
        }
    }

    /// Writes every minute that ends, until `stop` is cancelled.
    pub(crate) async fn run(self, brain: Shared<Brain>, stop: CancellationToken) {
        let mut periods = interval(PERIOD);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = periods.tick() => {}
            }
            let (minutes, gone) = brain.with(|brain, _| brain.take_unwritten());
            if minutes.is_empty() && gone.is_empty() {
                continue;
            }
            let (learner, of_minutes) = (self.clone(), brain.clone());
            let write = move || {
                let mut inner = learner.inner.lock().unwrap_or_else(PoisonError::into_inner);
                minutes.iter().for_each(|minute| inner.write(&of_minutes, minute));
                inner.forget(&of_minutes, &gone);
            };
            if let Err(error) = tokio::task::spawn_blocking(write).await {
                tracing::error!(%error, "the write of the history died");
                brain.with(|brain, _| brain.on_minute_lost());
            }
        }
    }
}

impl Inner {
    fn open_store(&mut self) -> Result<Kept, HistoryError> {
        let (store, kept) = HistoryStore::open(&self.state)?;
        self.store = Some(store);
        if let Some(loss) = &kept.loss {
            tracing::error!(%loss, "earlier history is lost: learning starts over from what the policy says");
        }
        Ok(kept)
    }

    fn restore(&mut self, kept: Kept, brain: &mut Brain, now: MonoTime) {
        // What was learned since the start is at least as new as what was kept of it.
        if !std::mem::replace(&mut self.restored, true) {
            let (buckets, minutes) = (kept.closed.len(), kept.minutes.len());
            brain.restore_history(kept.closed, kept.minutes);
            brain.restore_answers(now, kept.answers);
            tracing::info!(buckets, minutes, "the history goes on");
        }
    }

    fn with_store<R>(
        &mut self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&mut HistoryStore) -> Result<R, String>,
    ) -> Result<R, String> {
        if self.store.is_none() {
            let kept = self.open_store().map_err(|error| error.to_string())?;
            brain.with(|brain, now| self.restore(kept, brain, now));
            brain.ring();
        }
        let store = self.store.as_mut().ok_or("the history is not open")?;
        let done = f(store);
        if done.is_err() {
            self.store = None;
        }
        done
    }

    fn write(&mut self, brain: &Shared<Brain>, minute: &MinuteSamples) {
        if let Err(error) = self.with_store(brain, |store| store.write(minute)) {
            brain.with(|brain, _| brain.on_minute_lost());
            self.fail(&error);
            return;
        }
        if self.failures > 0 {
            tracing::warn!(
                minutes = self.failures,
                "the history can be written again; what was offered meanwhile is lost"
            );
            self.failures = 0;
        }
        let (closed, changes) = brain.with(|brain, _| brain.on_minute_written(minute));
        log_limits(&changes);
        if !changes.is_empty() {
            brain.ring();
        }
        // Should this fail, it follows from the minutes again.
        if let Err(error) = self.with_store(brain, |store| store.write_closed(&closed, &[])) {
            self.fail(&error);
        }
    }

    fn forget(&mut self, brain: &Shared<Brain>, gone: &[Bucket]) {
        if let Err(error) = self.with_store(brain, |store| store.write_closed(&[], gone)) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        if self.failures.is_multiple_of(LOGGED_EVERY) {
            tracing::error!(%error, "the history cannot be written: nothing is learned until it can, limits stay as they are");
        }
        self.failures += 1;
    }
}

/// Says which limits are others than before.
pub(crate) fn log_limits(changes: &[(Bucket, Limit)]) {
    for (bucket, limit) in changes {
        match limit {
            Limit::PerSecond(rate) => {
                tracing::info!(%bucket, limit_rps = rate.per_second(), "another limit is in force");
            }
            Limit::Unlimited | Limit::Unknown => tracing::info!(%bucket, "there is no limit any more"),
        }
    }
}
