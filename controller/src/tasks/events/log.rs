//! The events of a running controller: added by tasks and commands, which never wait, and saved by a task at most once a
//! second. A crash loses the last second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::list::EventList;
use super::place::EventPlace;
use super::{Event, EventPage, Severity};
use crate::brain::LimitChange;

const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The handle of the list. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventLog {
    list: Arc<Mutex<EventList>>,
    changes: watch::Sender<()>,
    /// The number of the last event of earlier processes; 0 without any.
    began: u64,
}

#[derive(Debug)]
pub(crate) struct EventSaver {
    log: EventLog,
    place: EventPlace,
    /// The number of the last saved event.
    saved: u64,
    is_failing: bool,
}

/// The time of day in milliseconds since 1970.
pub(super) fn unix_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

// === impl EventLog ===

impl EventLog {
    /// Reads the events of earlier processes. Without them the list begins anew. Blocks.
    pub(crate) fn open(mut place: EventPlace) -> (Self, EventSaver) {
        let saved = place.read().unwrap_or_else(|error| {
            tracing::error!(%error, "events of earlier processes lost: the list begins anew");
            Vec::new()
        });
        let list = EventList::restored(saved);
        let saved = list.last();
        let log = Self {
            list: Arc::new(Mutex::new(list)),
            changes: watch::Sender::default(),
            began: saved,
        };
        let saver = EventSaver {
            log: log.clone(),
            place,
            saved,
            is_failing: false,
        };
        (log, saver)
    }

    /// Adds an event, and logs it.
    pub(crate) fn add(&self, event: Event) {
        let Event { kind, subject, .. } = &event;
        match event.severity {
            Severity::Info => tracing::info!(?kind, subject, "{event}"),
            Severity::Warning => tracing::warn!(?kind, subject, "{event}"),
            Severity::Critical => tracing::error!(?kind, subject, "{event}"),
        }
        self.add_unlogged(event);
    }

    /// Adds an event whose log line the caller writes, because it says more.
    pub(crate) fn add_unlogged(&self, event: Event) {
        self.list().add(unix_ms(), event);
        self.changes.send_replace(());
    }

    /// Adds the limits that have moved notably, for the reason `how`.
    pub(crate) fn add_limits(&self, changes: &[LimitChange], how: &str) {
        for change in changes {
            let event = self.list().on_limit(change, how);
            event.into_iter().for_each(|event| self.add(event));
        }
    }

    pub(super) fn page(&self, after: u64, since_ms: i64, limit: usize) -> EventPage {
        self.list().page(after, since_ms, limit)
    }

    /// The latest events, the oldest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<Event> {
        let mut latest: Vec<Event> = self.list().after(0).rev().take(count).cloned().collect();
        latest.reverse();
        latest
    }

    pub(super) const fn began(&self) -> u64 {
        self.began
    }

    pub(super) fn last(&self) -> u64 {
        self.list().last()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn list(&self) -> MutexGuard<'_, EventList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl EventSaver ===

impl EventSaver {
    /// Saves until `stop` is cancelled, and then once more.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.log.changes();
        loop {
            // What is added before `stop` during a save is not in it.
            let is_last = stop.is_cancelled();
            let Ok(saver) = spawn_blocking(move || self.save()).await else {
                return tracing::error!(
                    "the save of events panicked: later ones are lost with a restart"
                );
            };
            self = saver;
            if is_last {
                return;
            }
            let changed = async {
                sleep(SAVE_EVERY).await;
                if !self.is_failing {
                    let _ = changes.changed().await;
                }
            };
            stop.run_until_cancelled(changed).await;
        }
    }

    fn save(mut self) -> Self {
        let last = self.log.last();
        if last == self.saved {
            return self;
        }
        match self.place.write(&self.log, self.saved) {
            Ok(()) => {
                self.saved = last;
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("events are saved again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%error, "events not saved: a restart loses them unless this succeeds");
                }
            }
        }
        self
    }
}
