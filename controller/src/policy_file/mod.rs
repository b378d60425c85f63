//! The policy on disk: reads the two files as one, and tells when their content changes, however an editor, a
//! deployment tool or a mounted ConfigMap goes about changing it.

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

#[cfg(test)]
mod tests;

/// How long a change is let settle before it is looked at.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often the files are looked at without being told to: some file systems tell nothing.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The same while a directory cannot be watched.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_secs(1);
/// How often the files are read anew to find both as they were a moment ago; if they never are, the next change or
/// poll will tell.
const READINGS_MAX: usize = 3;

/// Where the policy lies.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    /// The path of `policy.yaml`.
    pub policy: PathBuf,
    /// The path of `tenants.yaml`; without it all tenants are of one class.
    pub tenants: Option<PathBuf>,
}

/// A change of content.
#[derive(Debug)]
pub enum Reload {
    /// The new content is a policy.
    Accepted {
        /// What it says.
        policy: Arc<Policy>,
        /// What its author may not expect.
        warnings: Vec<Warning>,
    },
    /// It is not: whoever holds a policy keeps it.
    Refused(ReadError),
}

/// Why the files are no policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read at all.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file can be read but says something wrong.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

/// Why watching ended early.
#[derive(Debug, thiserror::Error)]
#[error("the thread that reads the policy died")]
pub struct WatchError(#[from] JoinError);

/// What was on disk at one moment, as far as it takes to tell a change from a repetition.
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

/// The directories being watched.
struct Sight {
    /// `None` where the system offers no way to be told of changes.
    debouncer: Option<Debouncer<RecommendedWatcher, NoCache>>,
    watched: BTreeSet<PathBuf>,
    complained: bool,
}

// === impl PolicyFiles ===

impl PolicyFiles {
    /// Reads both files as one policy. Blocks; never takes in more than the largest file allowed and one byte.
    ///
    /// # Errors
    /// When a file cannot be read, or what they say is no policy.
    pub fn read(&self) -> Result<(Policy, Vec<Warning>), ReadError> {
        Ok(self.parse(&self.content()?)?)
    }

    /// Sends one [`Reload`] for every change of content, beginning with the first content that is not `current`, and
    /// runs until the receiver is gone. Content that is refused is reported once, and so is a file that cannot be
    /// read, until something else is found in its place.
    ///
    /// # Errors
    /// When the thread that reads dies. Not being told of changes by the system is no error: then it polls.
    pub async fn watch(
        self,
        current: Option<PolicyHash>,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let wake = Arc::new(Notify::new());
        self.watch_by(Sight::open(Arc::clone(&wake)), &wake, current, tx).await
    }

    async fn watch_by(
        self,
        mut sight: Sight,
        wake: &Notify,
        current: Option<PolicyHash>,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        let files = Arc::new(self);
        let mut seen = current.map(Seen::Content);
        loop {
            // First watch, then read: a change in between is then told of.
            let looked = Arc::clone(&files);
            let directories = spawn_blocking(move || looked.directories()).await?;
            let poll_interval =
                if sight.follow(directories) { POLL_INTERVAL } else { POLL_INTERVAL_UNWATCHED };
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

    /// What is on disk, if it is not what was seen before.
    fn look(&self, before: Option<&Seen>) -> Option<(Seen, Reload)> {
        let content = self.content();
        let now = match &content {
            Ok(content) => Seen::Content(PolicyHash::of(&content.policy, &content.tenants)),
            Err((path, source)) => Seen::Unreadable(path.clone(), source.kind()),
        };
        if before == Some(&now) {
            return None;
        }
        let reload = match content.map_err(ReadError::from).and_then(|content| Ok(self.parse(&content)?)) {
            Ok((policy, warnings)) => Reload::Accepted { policy: Arc::new(policy), warnings },
            Err(error) => Reload::Refused(error),
        };
        Some((now, reload))
    }

    fn content(&self) -> Result<Content, (PathBuf, io::Error)> {
        let mut content = self.content_once()?;
        // Links may be swapped after the first file was read and before the second: then it takes another reading to
        // have two that belong together.
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
        Policy::read(
            Source::from_bytes(&policy, &content.policy)?,
            Source::from_bytes(&tenants, &content.tenants)?,
        )
    }

    /// The directories where a change can be seen: that of each path as written, which holds the links of a
    /// ConfigMap, and the one its links lead to.
    ///
    /// Never the files themselves: an editor that renames a new file into place takes the watch on the old one along.
    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for path in [Some(&self.policy), self.tenants.as_ref()].into_iter().flatten() {
            directories.insert(directory_of(path));
            directories.extend(path.canonicalize().ok().map(|real| directory_of(&real)));
        }
        directories
    }
}

impl From<(PathBuf, io::Error)> for ReadError {
    fn from((path, source): (PathBuf, io::Error)) -> Self {
        Self::Io { path, source }
    }
}

// === impl Sight ===

impl Sight {
    /// Asks the system to be told of changes: each wakes `wake`, once they have settled.
    fn open(wake: Arc<Notify>) -> Self {
        let on_events = move |result: DebounceEventResult| {
            // Reading the files is an access: to wake up for it would never end. Errors mean that events were lost.
            if result.map_or(true, |events| events.iter().any(|e| !matches!(e.kind, EventKind::Access(_)))) {
                wake.notify_one();
            }
        };
        match new_debouncer_opt(DEBOUNCE, None, on_events, NoCache, notify::Config::default()) {
            Ok(debouncer) => Self { debouncer: Some(debouncer), ..Self::blind() },
            Err(error) => {
                tracing::warn!(%error, every = ?POLL_INTERVAL_UNWATCHED, "cannot watch the policy files, polling");
                Self { complained: true, ..Self::blind() }
            }
        }
    }

    const fn blind() -> Self {
        Self { debouncer: None, watched: BTreeSet::new(), complained: false }
    }

    /// Watches `directories` and nothing else; false when one of them cannot be watched.
    fn follow(&mut self, directories: BTreeSet<PathBuf>) -> bool {
        let Some(debouncer) = &mut self.debouncer else { return false };
        for gone in self.watched.difference(&directories) {
            // A directory that was removed has taken its watch along: nothing is left to be done about it.
            let _ = debouncer.unwatch(gone);
        }
        self.watched.clear();
        let mut complete = true;
        for directory in directories {
            // Again for those watched already: a directory removed and made anew is another one by the same name.
            match debouncer.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(directory)),
                Err(error) => {
                    complete = false;
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!(
                            directory = %directory.display(), %error, every = ?POLL_INTERVAL_UNWATCHED,
                            "cannot watch a directory of the policy files, polling"
                        );
                    }
                }
            }
        }
        if complete {
            self.complained = false;
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

/// The bytes of a file, or one more than is allowed of one that is too large.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
