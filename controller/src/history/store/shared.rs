//! The history of several controllers, in their store: each minute of the open days is a key, and the summaries of the
//! closed days are a document. So the next leader goes on learning where this one ends.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_etcd::Operation;
use plimsoll_policy::learning::Day;
use serde::de::DeserializeOwned;

use super::{Restored, SavedAnswers};
use crate::history::csv::{self, HEADER};
use crate::history::{ClosedDays, MinuteSamples};
use crate::state::store::document::Unread;
use crate::state::store::etcd::EtcdStore;

const MINUTES: &str = "history/minutes/";
const CLOSED: &str = "history/closed";
const ANSWERS: &str = "history/answers";
/// Maximum number of minutes that are read, those of the open days and of days that wait for their summary. With more of
/// them none is read.
const MINUTES_MAX: u64 = 8 * 24 * 60;

#[derive(Debug)]
pub(crate) struct SharedHistory {
    store: Arc<EtcdStore>,
    /// The days that have minutes in the store.
    days: Mutex<BTreeSet<Day>>,
}

// === impl SharedHistory ===

impl SharedHistory {
    pub(crate) fn new(store: Arc<EtcdStore>) -> Self {
        let days = Mutex::default();
        Self { store, days }
    }

    /// Reads the summaries, and the minutes of open days. Damage is a loss, not an error.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn read(&self) -> io::Result<Restored> {
        let mut restored = Restored::default();
        restored.closed = self.read_json(CLOSED, &mut restored.losses).await?;
        restored.answers = self.read_json(ANSWERS, &mut restored.losses).await?;
        let minutes = self.store.list(MINUTES, MINUTES_MAX).await;
        for key in minutes.map_err(io::Error::other)? {
            let (minutes, dropped) = csv::read_written(&key.value);
            if !dropped.is_empty() {
                let name = String::from_utf8_lossy(&key.key);
                restored
                    .losses
                    .push(format!("the minute {name} of the store is damaged"));
            }
            self.note(minutes.iter().map(|minute| minute.minute.day()));
            restored.minutes.extend(minutes);
        }
        Ok(restored)
    }

    async fn read_json<T: DeserializeOwned + Default>(
        &self,
        key: &'static str,
        losses: &mut Vec<String>,
    ) -> io::Result<T> {
        let bytes = match self.store.read(key).await {
            Ok(None) => return Ok(T::default()),
            Ok(Some(bytes)) => bytes,
            Err(Unread::Store(error)) => return Err(io::Error::other(error)),
            Err(damage) => {
                losses.push(format!("{key} of the store: {damage}"));
                return Ok(T::default());
            }
        };
        Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            losses.push(format!("{key} of the store: {error}"));
            T::default()
        }))
    }

    /// Writes a minute, which outlives this process when this returns.
    ///
    /// # Errors
    /// When the store does not take it.
    pub(crate) async fn write(&self, minute: &MinuteSamples) -> io::Result<()> {
        if minute.samples.is_empty() {
            return Ok(());
        }
        let mut text = format!("{HEADER}\n");
        csv::append(&mut text, minute, &[]);
        let key = format!("{}{:010}", of_day(minute.minute.day()), minute.minute.0);
        let put = Operation::put(key, text, None);
        self.store
            .write(Vec::new(), [put])
            .await
            .map_err(io::Error::other)?;
        self.note([minute.minute.day()]);
        Ok(())
    }

    /// Writes the summaries of the closed days, and deletes their minutes.
    ///
    /// # Errors
    /// When the store does not take them. The earlier ones are kept.
    pub(crate) async fn write_closed(&self, closed: &ClosedDays) -> io::Result<()> {
        let since = closed.values().filter_map(|closed| closed.open).min();
        let over: Vec<Day> = {
            let days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
            let is_over = |day: &&Day| since.is_some_and(|since| **day < since);
            days.iter().filter(is_over).copied().collect()
        };
        let deletes = over
            .iter()
            .map(|day| Operation::delete_prefix(of_day(*day)));
        let documents = vec![(CLOSED, serde_json::to_vec(closed)?)];
        self.store
            .write(documents, deletes)
            .await
            .map_err(io::Error::other)?;
        let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        days.retain(|day| !over.contains(day));
        Ok(())
    }

    /// Writes the answers to queries.
    ///
    /// # Errors
    /// When the store does not take them. The earlier ones are kept.
    pub(crate) async fn write_answers(&self, answers: &SavedAnswers) -> io::Result<()> {
        let documents = vec![(ANSWERS, serde_json::to_vec(answers)?)];
        self.store
            .write(documents, None)
            .await
            .map_err(io::Error::other)
    }

    fn note(&self, days: impl IntoIterator<Item = Day>) {
        self.days
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(days);
    }
}

fn of_day(Day(day): Day) -> String {
    format!("{MINUTES}{day:06}/")
}
