//! The policy files: reads the two as one policy, and reports changes of their content by editors, deployment
//! tools and mounted ConfigMaps.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use plimsoll_policy::{FILE_BYTES_MAX, ONE_CLASS_TENANTS, Policy, PolicyError, PolicyHash, Source, Warning};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, spawn_blocking};

use crate::tasks::unix_s;

/// The delay between a change and its reading, in which further changes may follow.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The interval of reading the files without an event: some file systems report none.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The interval while a directory cannot be watched.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_secs(1);
/// The number of readings in search of two equal ones. If there are none, the next change or poll reads
/// again.
const READINGS_MAX: usize = 3;

/// The paths of the policy files.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    /// The path of `policy.yaml`.
    pub policy: PathBuf,
    /// The path of `tenants.yaml`; without it all tenants are of one class.
    pub tenants: Option<PathBuf>,
}

/// A change of the content: a policy with the legal content that may surprise its author, or the reason why
/// the one in force stays.
pub(crate) type Reload = Result<(Arc<Policy>, Vec<Warning>), ReadError>;

/// Why the files cannot be read as a policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file was read and is not valid.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

/// The reading thread panicked.
#[derive(Debug, thiserror::Error)]
#[error("the thread that reads the policy files panicked")]
pub(crate) struct WatchError(#[from] JoinError);

/// The content at one moment, as far as it takes to detect a change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Content(PolicyHash),
    Unreadable(PathBuf, io::ErrorKind),
}

/// The two files as bytes, each at most one byte longer than is allowed.
#[derive(PartialEq, Eq)]
struct Content {
    policy: Vec<u8>,
    tenants: Vec<u8>,
}

/// The watched directories.
struct Watch {
    /// `None` if the system offers no events.
    debouncer: Option<Debouncer<RecommendedWatcher, NoCache>>,
    watched: BTreeSet<PathBuf>,
    warned: bool,
}

// === impl PolicyFiles ===

impl PolicyFiles {
    /// Reads both files as one policy. Blocks; reads at most one byte more than the largest file allowed.
    ///
    /// # Errors
    /// When a file cannot be read, or the two are no policy.
    pub fn read(&self) -> Result<(Policy, Vec<Warning>), ReadError> {
        Ok(self.parse(&self.content()?)?)
    }

    /// Returns the hash of both files as they are now. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hash(&self) -> Result<PolicyHash, ReadError> {
        Ok(self.content()?.hash())
    }

    /// Sends one [`Reload`] for every change of content, beginning with the first content that is not
    /// `current`, until the receiver is dropped. Refused content and an unreadable file are reported once,
    /// until the next change.
    ///
    /// # Errors
    /// When the reading thread panics. Without events of the system it polls, which is no error.
    pub(crate) async fn watch(
        self,
        current: Option<PolicyHash>,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let wake = Arc::new(Notify::new());
        self.watch_by(Watch::open(Arc::clone(&wake)), &wake, current, tx).await
    }

    async fn watch_by(
        self,
        mut watch: Watch,
        wake: &Notify,
        current: Option<PolicyHash>,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let files = Arc::new(self);
        let mut seen = current.map(Seen::Content);
        loop {
            // First watch, then read: a change in between is an event.
            let looked = Arc::clone(&files);
            let directories = spawn_blocking(move || looked.directories()).await?;
            let poll_interval =
                if watch.follow(directories) { POLL_INTERVAL } else { POLL_INTERVAL_UNWATCHED };
            let (looked, before) = (Arc::clone(&files), seen.clone());
            if let Some((now, reload)) = spawn_blocking(move || looked.look(before.as_ref())).await? {
                seen = Some(now);
                if tx.send(reload).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep(poll_interval) => {}
                () = tx.closed() => return Ok(()),
            }
        }
    }

    /// Returns the content and the reload, if the content has changed.
    fn look(&self, before: Option<&Seen>) -> Option<(Seen, Reload)> {
        let content = self.content();
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

    fn content(&self) -> Result<Content, (PathBuf, io::Error)> {
        let mut content = self.content_once()?;
        // Links may be swapped between the readings of the two files: another reading then finds two of one
        // version.
        for _ in 0..READINGS_MAX {
            let again = self.content_once()?;
            if again == content {
                break;
            }
            content = again;
        }
        Ok(content)
    }

    fn content_once(&self) -> Result<Content, (PathBuf, io::Error)> {
        let read = |path: &Path| bytes_of(path).map_err(|source| (path.to_owned(), source));
        Ok(Content {
            policy: read(&self.policy)?,
            tenants: match &self.tenants {
                Some(path) => read(path)?,
                None => ONE_CLASS_TENANTS.as_bytes().to_owned(),
            },
        })
    }

    fn parse(&self, content: &Content) -> Result<(Policy, Vec<Warning>), PolicyError> {
        let policy = self.policy.display().to_string();
        let tenants =
            self.tenants.as_ref().map_or("(built-in tenants)".to_owned(), |path| path.display().to_string());
        let (policy, mut warnings) = Policy::read(
            Source::from_bytes(&policy, &content.policy)?,
            Source::from_bytes(&tenants, &content.tenants)?,
        )?;
        let now = unix_s();
        warnings.retain(|warning| warning.holds_at(now));
        Ok((policy, warnings))
    }

    /// Returns the directories to watch: that of each path as written, which holds the links of a ConfigMap,
    /// and the one its links lead to.
    ///
    /// The files themselves are not watched: a rename over a file removes the watch with the old file.
    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for path in [Some(&self.policy), self.tenants.as_ref()].into_iter().flatten() {
            directories.insert(directory_of(path));
            directories.extend(path.canonicalize().ok().map(|real| directory_of(&real)));
        }
        directories
    }
}

impl Content {
    fn hash(&self) -> PolicyHash {
        PolicyHash::of(&self.policy, &self.tenants)
    }
}

impl From<(PathBuf, io::Error)> for ReadError {
    fn from((path, source): (PathBuf, io::Error)) -> Self {
        Self::Io { path, source }
    }
}

// === impl Watch ===

impl Watch {
    /// Subscribes to the events of the system. Changes notify `wake` after [`DEBOUNCE`].
    fn open(wake: Arc<Notify>) -> Self {
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

    const fn without_events() -> Self {
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

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns the bytes of a file; of one that is too large, one byte more than is allowed.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
