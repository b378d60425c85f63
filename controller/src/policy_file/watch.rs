//! Changes of the policy files by editors, deployment tools and mounted ConfigMaps. Every step that touches the disk
//! runs in a thread of its own and has a deadline: a mount may hang, also while it is watched.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use plimsoll_policy::PolicyHash;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use super::{Content, PolicyFiles, ReadError, Reload, bytes_of};

/// The delay between a change and its reading, in which further changes may follow.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The interval of reading the files without an event: some file systems report none.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The interval while a directory cannot be watched.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_secs(1);
/// The longest time that the disk may take before the files count as unreadable.
pub(super) const READ_MAX: Duration = Duration::from_secs(5);

/// The reading thread panicked.
#[derive(Debug, thiserror::Error)]
#[error("the thread that reads the policy files panicked")]
pub(crate) struct WatchError(#[from] JoinError);

/// The content at one moment, as far as it takes to detect a change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Content(PolicyHash),
    Unreadable(PathBuf, io::ErrorKind),
    /// The disk has not answered yet.
    Silent,
}

/// The result of reading the files.
type Reading = Result<Content, (PathBuf, io::Error)>;

/// The watched directories.
pub(super) struct Watch {
    /// `None` if the system offers no events.
    debouncer: Option<Debouncer<RecommendedWatcher, NoCache>>,
    watched: BTreeSet<PathBuf>,
    warned: bool,
}

// === impl PolicyFiles ===

impl PolicyFiles {
    /// Sends one [`Reload`] for every change of content, beginning with the first content that is not
    /// `current`, until the receiver is dropped. Refused content and an unreadable file are reported once,
    /// until the next change. Calls `on_read` whenever both files were read.
    ///
    /// # Errors
    /// When the reading thread panics. Without events of the system it polls, which is no error.
    pub(crate) async fn watch(
        self,
        current: Option<PolicyHash>,
        on_read: impl Fn() + Send,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let wake = Arc::new(Notify::new());
        self.watch_by(Watch::open(Arc::clone(&wake)), &wake, bytes_of, current, on_read, tx).await
    }

    /// Watches by events of `watch` and `wake`, and reads files by `read`.
    pub(super) async fn watch_by(
        self,
        mut watch: Watch,
        wake: &Notify,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Clone + Send + 'static,
        current: Option<PolicyHash>,
        on_read: impl Fn() + Send,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let files = Arc::new(self);
        let mut seen = current.map(Seen::Content);
        loop {
            let (reader, read) = (Arc::clone(&files), read.clone());
            let mut reading = spawn_blocking(move || {
                // First watch, then read: a change in between is an event.
                let complete = watch.follow(reader.directories());
                (watch, complete, reader.content(read))
            });
            let done = match timeout(READ_MAX, &mut reading).await {
                Ok(done) => done,
                Err(_) => {
                    seen = Some(Seen::Silent);
                    if tx.send(Err(ReadError::Silent { path: files.policy.clone() })).await.is_err() {
                        return Ok(());
                    }
                    // No other reading begins meanwhile, so that no more threads wait for the disk.
                    tokio::select! {
                        done = &mut reading => done,
                        () = tx.closed() => return Ok(()),
                    }
                }
            };
            let (watching, complete, content) = done?;
            watch = watching;
            if content.is_ok() {
                on_read();
            }
            let (parser, before) = (Arc::clone(&files), seen.clone());
            if let Some((now, reload)) = spawn_blocking(move || parser.look(content, before.as_ref())).await?
            {
                seen = Some(now);
                if tx.send(reload).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep(if complete { POLL_INTERVAL } else { POLL_INTERVAL_UNWATCHED }) => {}
                () = tx.closed() => return Ok(()),
            }
        }
    }

    /// Returns the content and the reload, if the content has changed.
    fn look(&self, content: Reading, before: Option<&Seen>) -> Option<(Seen, Reload)> {
        let now = match &content {
            Ok(content) => Seen::Content(content.hash()),
            Err((path, source)) => Seen::Unreadable(path.clone(), source.kind()),
        };
        if before == Some(&now) {
            return None;
        }
        let parsed = content.map_err(ReadError::from).and_then(|content| Ok(self.parse(&content)?));
        Some((now, parsed.map(|(policy, warnings)| (Arc::new(policy), warnings))))
    }
}

// === impl Watch ===

impl Watch {
    /// Subscribes to the events of the system. Changes notify `wake` after [`DEBOUNCE`].
    pub(super) fn open(wake: Arc<Notify>) -> Self {
        let on_events = move |result: DebounceEventResult| {
            // Reading the files is an access, which must not cause the next reading. Errors mean that events
            // were lost.
            if result.map_or(true, |events| events.iter().any(|e| !matches!(e.kind, EventKind::Access(_)))) {
                wake.notify_one();
            }
        };
        match new_debouncer_opt(DEBOUNCE, None, on_events, NoCache, notify::Config::default()) {
            Ok(debouncer) => Self { debouncer: Some(debouncer), ..Self::without_events() },
            Err(error) => {
                tracing::warn!(%error, every = ?POLL_INTERVAL_UNWATCHED, "policy watch unavailable: polling the files");
                Self { warned: true, ..Self::without_events() }
            }
        }
    }

    pub(super) const fn without_events() -> Self {
        Self { debouncer: None, watched: BTreeSet::new(), warned: false }
    }

    /// Watches exactly `directories`; false if one of them cannot be watched.
    fn follow(&mut self, directories: BTreeSet<PathBuf>) -> bool {
        let Some(debouncer) = &mut self.debouncer else { return false };
        for gone in self.watched.difference(&directories) {
            // The watch of a removed directory is gone already.
            let _ = debouncer.unwatch(gone);
        }
        self.watched.clear();
        let mut complete = true;
        for directory in directories {
            // Watched directories too: one that was removed and created again has no watch.
            match debouncer.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(directory)),
                Err(error) => {
                    complete = false;
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(
                            directory = %directory.display(), %error, every = ?POLL_INTERVAL_UNWATCHED,
                            "policy directory cannot be watched: polling the files"
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
