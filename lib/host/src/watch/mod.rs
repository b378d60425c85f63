//! Files that are read together and followed while editors, deployment tools and mounted ConfigMaps
//! change them. While they are followed, every disk access runs in a separate thread with a deadline,
//! because a mount may hang at any time.

mod events;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::atomic_file::directory_of;
use crate::regular_file;
use events::Events;

/// Maximum number of further readings until two in a row agree. If none do, the last contents apply
/// until the next change or poll.
const REREADINGS_MAX: usize = 3;
/// Poll interval without events: some file systems report none.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Poll interval while a directory cannot be watched.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_secs(1);
/// Maximum time that the disk may take before the files count as unreadable.
const READ_MAX: Duration = Duration::from_secs(5);
/// Maximum time that a parser, which may read large files, takes before the files are reported as
/// unreadable. Its result is used anyway when it arrives.
const PARSE_MAX: Duration = Duration::from_secs(30);

/// Files that are read together.
#[derive(Clone, Debug)]
pub struct Files {
    /// Paths, at least one.
    pub paths: Vec<PathBuf>,
    /// Maximum size of a valid file. One byte more is read.
    pub bytes_max: usize,
    /// Paths of files that are too large to read with each look; the [`Parser`] reads them. Their
    /// contents are replaced by what the file system says of each: identity, length and times.
    pub large: Vec<PathBuf>,
}

/// Contents of [`Files::paths`], each at most one byte too long, and then the replacements of
/// [`Files::large`], both in their order.
pub type Contents = [Vec<u8>];

/// Parser of the files.
pub trait Parser: Send + Sync + 'static {
    /// Identity of the contents, which shows a change.
    type Version: Clone + PartialEq + Send;
    /// Value of valid contents.
    type Output: Send + 'static;
    /// Reason why there is no value.
    type Error: From<ReadError> + Send + 'static;

    /// Returns the identity of the contents.
    fn version(&self, contents: &Contents) -> Self::Version;

    /// Returns the value of the contents.
    ///
    /// # Errors
    /// When the contents are invalid.
    fn parse(&self, contents: &Contents) -> Result<Self::Output, Self::Error>;

    /// Returns true if [`parse`](Self::parse) could not read a large file: it is tried again with the
    /// same contents.
    fn is_unread(_error: &Self::Error) -> bool {
        false
    }
}

/// A change of the contents: the new value, or the reason why the old value stays.
pub type Reload<P> = Result<<P as Parser>::Output, <P as Parser>::Error>;

/// The reason why files cannot be read.
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
    /// The disk has not answered for this long.
    #[error("no answer from the disk of {} within {} s", path.display(), waited.as_secs())]
    Silent {
        /// The first file.
        path: PathBuf,
        /// The time.
        waited: Duration,
    },
}

/// The reading thread panicked.
#[derive(Debug, thiserror::Error)]
#[error("the thread that reads the files panicked")]
pub struct WatchError(#[from] JoinError);

/// What was reported last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen<V> {
    Contents(V),
    Unreadable(PathBuf, io::ErrorKind),
    /// The parser could not read a large file.
    Unparsed,
    /// The disk has not answered yet.
    Silent,
}

type Reading = Result<Vec<Vec<u8>>, (PathBuf, io::Error)>;

impl Files {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&self) -> Result<Vec<Vec<u8>>, ReadError> {
        let bytes_max = self.bytes_max;
        Ok(self.contents(|path| regular_file::read(path, bytes_max))?)
    }

    /// Sends one [`Reload`] for every change of the contents, first if they are not `current`,
    /// until the receiver is dropped. Reports refused contents and an unreadable file once, until
    /// the next change. Calls `on_read` whenever all files were read.
    ///
    /// # Errors
    /// When the reading thread panics. Without system events it polls, which is not an error.
    pub async fn watch<P: Parser>(
        self,
        parser: P,
        current: Option<P::Version>,
        on_read: impl Fn() + Send,
        tx: mpsc::Sender<Reload<P>>,
    ) -> Result<(), WatchError> {
        let (wake, bytes_max) = (Arc::new(Notify::new()), self.bytes_max);
        let read = move |path: &Path| regular_file::read(path, bytes_max);
        self.watch_by(
            Events::open(Arc::clone(&wake)),
            &wake,
            read,
            parser,
            current,
            on_read,
            tx,
        )
        .await
    }

    #[expect(clippy::too_many_arguments, reason = "the parts that tests replace")]
    async fn watch_by<P: Parser>(
        self,
        mut events: Events,
        wake: &Notify,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Clone + Send + 'static,
        parser: P,
        current: Option<P::Version>,
        on_read: impl Fn() + Send,
        tx: mpsc::Sender<Reload<P>>,
    ) -> Result<(), WatchError> {
        let (files, parser) = (Arc::new(self), Arc::new(parser));
        let mut seen = current.map(Seen::Contents);
        loop {
            let (reader, read) = (Arc::clone(&files), read.clone());
            let reading = spawn_blocking(move || {
                // Watches before it reads: a change in between causes an event.
                let complete = events.follow(reader.directories());
                (events, complete, reader.contents(read))
            });
            // After silence the contents are sent even if they are the same as before.
            let on_silence = || seen = Some(Seen::Silent);
            let reading = files.at_disk(reading, READ_MAX, on_silence, &tx).await?;
            let Some((watching, complete, contents)) = reading else {
                return Ok(());
            };
            events = watching;
            if contents.is_ok() {
                on_read();
            }
            // The same contents are not parsed again, unless the parser could not read a large file.
            let now = match &contents {
                Ok(contents) => Seen::Contents(parser.version(contents)),
                Err((path, source)) => Seen::Unreadable(path.clone(), source.kind()),
            };
            if seen.as_ref() != Some(&now) {
                let parser = Arc::clone(&parser);
                let parsing =
                    spawn_blocking(move || parser.parse(&contents.map_err(ReadError::from)?));
                let Some(parsed) = files.at_disk(parsing, PARSE_MAX, || (), &tx).await? else {
                    return Ok(());
                };
                let is_unread = parsed.as_ref().is_err_and(P::is_unread);
                let now = if is_unread { Seen::Unparsed } else { now };
                let is_sent = is_unread && seen.as_ref() == Some(&now);
                seen = Some(now);
                if !is_sent && tx.send(parsed).await.is_err() {
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

    /// Waits for a task that uses the disk. Reports silence after this time. Returns `None` once the receiver is dropped.
    async fn at_disk<T, R, E: From<ReadError>>(
        &self,
        mut task: JoinHandle<T>,
        wait_max: Duration,
        on_silence: impl FnOnce(),
        tx: &mpsc::Sender<Result<R, E>>,
    ) -> Result<Option<T>, WatchError> {
        if let Ok(done) = timeout(wait_max, &mut task).await {
            return Ok(Some(done?));
        }
        on_silence();
        let silent = ReadError::Silent {
            path: self.paths.first().cloned().unwrap_or_default(),
            waited: wait_max,
        };
        if tx.send(Err(silent.into())).await.is_err() {
            return Ok(None);
        }
        // No other task starts meanwhile, so that no more threads wait for the disk.
        tokio::select! {
            done = task => Ok(Some(done?)),
            () = tx.closed() => Ok(None),
        }
    }

    fn contents(&self, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Reading {
        let mut contents = self.contents_once(&read)?;
        // Links may be swapped between the readings of two files. A second reading then finds one
        // version of both.
        for _ in 0..REREADINGS_MAX {
            let again = self.contents_once(&read)?;
            if again == contents {
                break;
            }
            contents = again;
        }
        Ok(contents)
    }

    fn contents_once(&self, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Reading {
        let whole = self.paths.iter().map(|path| (path, read(path)));
        let large = self.large.iter().map(|path| (path, fingerprint(path)));
        whole
            .chain(large)
            .map(|(path, read)| read.map_err(|source| (path.clone(), source)))
            .collect()
    }

    /// Returns the directories to watch: the directory of each path as written, which holds the
    /// links of a ConfigMap, and the directory that the links lead to.
    ///
    /// The files themselves are not watched: a rename over a file removes the watch with the old
    /// file.
    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for path in self.paths.iter().chain(&self.large) {
            directories.insert(directory_of(path).to_owned());
            let real = path.canonicalize().ok();
            directories.extend(real.map(|real| directory_of(&real).to_owned()));
        }
        directories
    }
}

impl From<(PathBuf, io::Error)> for ReadError {
    fn from((path, source): (PathBuf, io::Error)) -> Self {
        Self::Io { path, source }
    }
}

/// Returns what the file system says of a file: another text whenever it was replaced or written.
fn fingerprint(path: &Path) -> io::Result<Vec<u8>> {
    let about = std::fs::metadata(path)?;
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt;
        (about.dev(), about.ino(), about.ctime(), about.ctime_nsec())
    };
    #[cfg(not(unix))]
    let identity = ();
    let text = format!("{identity:?} {} {:?}", about.len(), about.modified().ok());
    Ok(text.into_bytes())
}
