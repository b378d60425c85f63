//! Saves the history minute by minute, off the brain's lock, and lets the brain learn from what is saved. A
//! disk that fails stops the learning and nothing else.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use tokio::runtime::Handle;
use tokio::time::interval;

use crate::admin::Commands;
use crate::brain::Brain;
use crate::history::store::shared::SharedHistory;
use crate::history::store::{HistoryStore, Restored};
use crate::history::{MinuteSamples, Unsaved};
use crate::tasks::events::EventLog;

const PERIOD: Duration = Duration::from_secs(1);
/// Number of failures in a row for each log line of one.
const LOGGED_EVERY: u64 = 60;
/// What moves a learned limit, in an event.
pub(crate) const LEARNED: &str = "learned from the traffic";

#[derive(Clone, Debug)]
pub(crate) struct HistoryRecorder {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    store: HistoryStore,
    /// The history in the store of several controllers, which this one goes on from.
    shared: Option<SharedHistory>,
    /// The brain was given the saved history. Nothing is written before.
    is_restored: bool,
    /// Minutes that could not be saved since the last one that was.
    failures: u64,
    /// True while the summaries or the answers cannot be saved.
    has_unsaved: bool,
}

impl HistoryRecorder {
    /// Opens the history in the state directory, or a shared one, and restores it in the brain. Errors are logged, and
    /// the controller starts without a history.
    pub(crate) fn open(state: &Path, shared: Option<SharedHistory>, brain: &mut Brain) -> Self {
        let mut inner = Inner {
            store: HistoryStore::new(state),
            shared,
            is_restored: false,
            failures: 0,
            has_unsaved: false,
        };
        match inner.read() {
            Ok(restored) => brain.restore_history(MonoTime::ZERO, restored),
            Err(error) => {
                brain.limits.history.on_lost();
                inner.fail(&error);
            }
        }
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Runs `f` on the history on disk, which the brain is given first if the start could not read it. Blocks.
    ///
    /// # Errors
    /// When the history cannot be read, or `f` fails.
    pub(crate) fn with_store<R>(
        &self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&HistoryStore) -> io::Result<R>,
    ) -> io::Result<R> {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .with_store(brain, f)
    }

    /// Saves what is unsaved every second, forever.
    pub(crate) async fn run(self, Commands { brain, events, .. }: Commands) {
        let mut periods = interval(PERIOD);
        loop {
            periods.tick().await;
            let (recorder, of_save, events) = (self.clone(), brain.clone(), events.clone());
            let save = move || {
                recorder
                    .inner
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .save(&of_save, &events)
            };
            if let Err(error) = tokio::task::spawn_blocking(save).await {
                tracing::error!(%error, "history save panicked");
                brain.with(|brain, _| brain.limits.history.on_lost());
            }
        }
    }
}

impl Inner {
    fn read(&mut self) -> io::Result<Restored> {
        let restored = match &self.shared {
            None => self.store.open()?,
            Some(shared) => {
                let restored = Handle::current().block_on(shared.read())?;
                let minutes = restored.minutes.iter();
                let minutes = minutes.map(|it| (it.minute, it.samples.clone())).collect();
                // So that this member exports the whole day.
                self.store.merge(&minutes, false)?;
                restored
            }
        };
        self.is_restored = true;
        for loss in &restored.losses {
            tracing::error!(loss, "history lost in part");
        }
        tracing::info!(
            buckets = restored.closed.len(),
            minutes = restored.minutes.len(),
            "history restored"
        );
        Ok(restored)
    }

    fn with_store<R>(
        &mut self,
        brain: &Shared<Brain>,
        f: impl FnOnce(&HistoryStore) -> io::Result<R>,
    ) -> io::Result<R> {
        if !self.is_restored {
            let restored = self.read()?;
            brain.with(|brain, now| {
                brain.restore_history(now, restored);
                // Those that `f` saves may be from before.
                brain.limits.has_unsaved_answers = true;
            });
            brain.notify();
        }
        f(&self.store)
    }

    fn write(&mut self, brain: &Shared<Brain>, minute: &MinuteSamples) -> io::Result<()> {
        self.with_store(brain, |store| store.write(minute))?;
        self.shared.as_ref().map_or(Ok(()), |shared| {
            Handle::current().block_on(shared.write(minute))
        })
    }

    fn save(&mut self, brain: &Shared<Brain>, events: &EventLog) {
        let Unsaved {
            minutes,
            closed,
            answers,
        } = brain.with(|brain, _| brain.take_unsaved_history());
        for minute in &minutes {
            if let Err(error) = self.write(brain, minute) {
                brain.with(|brain, _| brain.limits.history.on_lost());
                self.fail(&error);
                continue;
            }
            if self.failures > 0 {
                tracing::warn!(
                    minutes = self.failures,
                    "history save succeeds again; the traffic of the failed minutes is lost"
                );
                self.failures = 0;
            }
            let changes = brain.with(|brain, _| brain.on_minute_written(minute));
            events.add_limits(&changes, LEARNED);
            if !changes.is_empty() {
                brain.notify();
            }
        }
        let closed = closed.map_or(Ok(()), |closed| match &self.shared {
            Some(shared) => Handle::current().block_on(shared.write_closed(&closed)),
            None => self.with_store(brain, |store| store.write_closed(&closed)),
        });
        let answers = answers.map_or(Ok(()), |answers| match &self.shared {
            Some(shared) => Handle::current().block_on(shared.write_answers(&answers)),
            None => self.with_store(brain, |store| store.write_answers(&answers)),
        });
        brain.with(|brain, _| {
            brain.limits.history.has_unsaved_days |= closed.is_err();
            brain.limits.has_unsaved_answers |= answers.is_err();
        });
        let saved = closed.and(answers);
        let had_unsaved = std::mem::replace(&mut self.has_unsaved, saved.is_err());
        match saved {
            Err(error) if !had_unsaved => {
                tracing::error!(%error, "history summaries or answers to queries not saved: the next attempt is in a second");
            }
            Ok(()) if had_unsaved => {
                tracing::info!("history summaries and answers to queries are saved again");
            }
            _ => {}
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if self.failures.is_multiple_of(LOGGED_EVERY) {
            tracing::error!(%error, "history save failed: nothing is learned until it succeeds, limits stay as they are");
        }
        self.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Controller;

    #[tokio::test]
    async fn unsaved_summaries_are_saved_later() {
        let directory = tempfile::tempdir().unwrap();
        let args = crate::tasks::tests::args(directory.path());
        let Controller {
            commands, recorder, ..
        } = Controller::open(&args).unwrap();
        let Commands { brain, events, .. } = commands;
        brain.with(|brain, _| brain.limits.history.has_unsaved_days = true);
        let path = args.state_dir.join("history/closed.json");
        fs::create_dir_all(&path).unwrap();
        let save = || recorder.inner.lock().unwrap().save(&brain, &events);
        save();
        fs::remove_dir(&path).unwrap();
        save();
        assert!(path.is_file() && !recorder.inner.lock().unwrap().has_unsaved);
    }
}
