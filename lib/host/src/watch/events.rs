//! File system events for the directories of watched files.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use tokio::sync::Notify;

use super::POLL_INTERVAL_UNWATCHED;

/// Delay between a change and its reading, because more changes may follow.
const DEBOUNCE: Duration = Duration::from_millis(100);

pub(super) struct Events {
    /// `None` if the system offers no events.
    debouncer: Option<Debouncer<RecommendedWatcher, NoCache>>,
    watched: BTreeSet<PathBuf>,
    /// True once the log has said that files are polled, until all directories are watched.
    warned: bool,
}

impl Events {
    /// Subscribes to system events. Changes notify `wake` after [`DEBOUNCE`].
    pub(super) fn open(wake: Arc<Notify>) -> Self {
        let on_events = move |result: DebounceEventResult| {
            // Reading the files is an access, which must not trigger the next reading. An error
            // means that events were lost.
            if result.map_or(true, |events| {
                events
                    .iter()
                    .any(|e| !matches!(e.kind, EventKind::Access(_)))
            }) {
                wake.notify_one();
            }
        };
        match new_debouncer_opt(
            DEBOUNCE,
            None,
            on_events,
            NoCache,
            notify::Config::default(),
        ) {
            Ok(debouncer) => Self {
                debouncer: Some(debouncer),
                ..Self::none()
            },
            Err(error) => {
                tracing::warn!(%error, every = ?POLL_INTERVAL_UNWATCHED, "file watch unavailable: polling the files");
                Self {
                    warned: true,
                    ..Self::none()
                }
            }
        }
    }

    /// Watches nothing, so that the files are polled.
    pub(super) const fn none() -> Self {
        Self {
            debouncer: None,
            watched: BTreeSet::new(),
            warned: false,
        }
    }

    /// Watches exactly `directories`; false if one of them cannot be watched.
    pub(super) fn follow(&mut self, directories: BTreeSet<PathBuf>) -> bool {
        let Some(debouncer) = &mut self.debouncer else {
            return false;
        };
        for gone in self.watched.difference(&directories) {
            // A removed directory has lost its watch already.
            let _ = debouncer.unwatch(gone);
        }
        self.watched.clear();
        let mut complete = true;
        for directory in directories {
            // Includes watched directories: a directory that was removed and created again has no
            // watch.
            match debouncer.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(directory)),
                Err(error) => {
                    complete = false;
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(
                            directory = %directory.display(), %error, every = ?POLL_INTERVAL_UNWATCHED,
                            "directory cannot be watched: polling its files"
                        );
                    }
                }
            }
        }
        if complete {
            self.warned = false;
        }
        complete
    }
}
