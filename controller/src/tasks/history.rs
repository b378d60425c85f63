//! Saves the history minute by minute, off the brain's lock, and lets the brain learn from what is saved. A
//! disk that fails stops the learning and nothing else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{Limit, MonoTime, Rate};
use plimsoll_policy::Prometheus;
use plimsoll_proto::shared::Shared;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::brain::{Brain, LimitChange};
use crate::history::MinuteSamples;
use crate::history::store::{HistoryError, HistoryStore, Restored};

/// The interval between two checks for ended minutes.
const PERIOD: Duration = Duration::from_secs(1);
/// Failures in a row of which one is logged. They come once a minute.
const LOGGED_EVERY: u64 = 60;

/// The history on disk, shared by the task that saves it and the routes that export and import it.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRecorder {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    state: PathBuf,
    /// `None` after a failure, until it is opened again.
    store: Option<HistoryStore>,
    /// The brain was given the saved history.
    restored: bool,
    /// Failures since the last save that succeeded.
    failures: u64,
}

impl HistoryRecorder {
    /// Opens the history in the state directory and restores it in the brain. Errors are logged, and the
    /// controller starts without a history.
    pub(crate) fn open(state: &Path, brain: &mut Brain) -> Self {
        let mut inner = Inner { state: state.to_owned(), store: None, restored: false, failures: 0 };
        match inner.open_store() {
            Ok(restored) => inner.restore(restored, brain, MonoTime::ZERO),
            Err(error) => {
                brain.on_minute_lost();
                inner.fail(&error);
            }
        }
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Runs `f` on the history on disk. Blocks.
    ///
    /// # Errors
    /// When the history cannot be opened, or `f` fails. The next call opens it again.
    pub(crate) fn with_store<R>(
        &self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&mut HistoryStore) -> Result<R, String>,
    ) -> Result<R, String> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).with_store(brain, f)
    }

    /// Saves the answer to a query for the next start. Blocks.
    pub(crate) fn save_answer(&self, brain: &Shared<Brain>, source: &Prometheus, rate: Rate) {
        if let Err(error) =
            self.with_store(brain, |store| store.write_answer(&source.url, &source.query, rate))
        {
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).fail(&error);
        }
    }

    /// Saves every minute that ends, until `stop` is cancelled.
    pub(crate) async fn run(self, brain: Shared<Brain>, stop: CancellationToken) {
        let mut periods = interval(PERIOD);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = periods.tick() => {}
            }
            let (minutes, forgotten) = brain.with(|brain, _| brain.take_unwritten());
            if minutes.is_empty() && forgotten.is_empty() {
                continue;
            }
            let (recorder, of_minutes) = (self.clone(), brain.clone());
            let write = move || {
                let mut inner = recorder.inner.lock().unwrap_or_else(PoisonError::into_inner);
                minutes.iter().for_each(|minute| inner.write(&of_minutes, minute));
                inner.forget(&of_minutes, &forgotten);
            };
            if let Err(error) = tokio::task::spawn_blocking(write).await {
                tracing::error!(%error, "history save panicked");
                brain.with(|brain, _| brain.on_minute_lost());
            }
        }
    }
}

impl Inner {
    fn open_store(&mut self) -> Result<Restored, HistoryError> {
        let (store, restored) = HistoryStore::open(&self.state)?;
        self.store = Some(store);
        if let Some(loss) = &restored.loss {
            tracing::error!(%loss, "history lost: learning starts over from the policy");
        }
        Ok(restored)
    }

    fn restore(&mut self, restored: Restored, brain: &mut Brain, now: MonoTime) {
        // After the first time the brain knows at least as much as the disk.
        if !std::mem::replace(&mut self.restored, true) {
            let (buckets, minutes) = (restored.closed.len(), restored.minutes.len());
            brain.restore_history(restored.closed, restored.minutes);
            brain.restore_answers(now, restored.answers);
            tracing::info!(buckets, minutes, "history restored");
        }
    }

    fn with_store<R>(
        &mut self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&mut HistoryStore) -> Result<R, String>,
    ) -> Result<R, String> {
        if self.store.is_none() {
            let restored = self.open_store().map_err(|error| error.to_string())?;
            brain.with(|brain, now| self.restore(restored, brain, now));
            brain.notify();
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
                "history save succeeds again; the traffic of the failed minutes is lost"
            );
            self.failures = 0;
        }
        let (closed, changes) = brain.with(|brain, _| brain.on_minute_written(minute));
        log_limits(&changes);
        if !changes.is_empty() {
            brain.notify();
        }
        // After a failure the next start computes it again from the minutes.
        if let Err(error) = self.with_store(brain, |store| store.write_closed(&closed, &[])) {
            self.fail(&error);
        }
    }

    fn forget(&mut self, brain: &Shared<Brain>, forgotten: &[Bucket]) {
        if let Err(error) = self.with_store(brain, |store| store.write_closed(&[], forgotten)) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        if self.failures.is_multiple_of(LOGGED_EVERY) {
            tracing::error!(%error, "history save failed: nothing is learned until it succeeds, limits stay as they are");
        }
        self.failures += 1;
    }
}

/// Logs every change of a limit with the bucket, the old and the new limit in requests/s; without one the
/// field is absent.
pub(crate) fn log_limits(changes: &[LimitChange]) {
    let rps = |limit: Limit| limit.per_second().map(Rate::per_second);
    for LimitChange { bucket, old, new } in changes {
        tracing::info!(%bucket, old_rps = rps(*old), new_rps = rps(*new), "learned limit changed");
    }
}
