//! The file in which a limiter's directives outlive its process: read once at the start, written behind the request
//! path's back, and never in anybody's way.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cache::directive_cache::{Kept, Owner, Unfit};

/// The largest file that is written, and read.
pub(crate) const BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Where directives are kept, and whose.
#[derive(Clone, Debug)]
pub(crate) struct Keepsake {
    path: PathBuf,
    owner: Owner,
    /// One write at a time: an orderly stop may come in the middle of one.
    writing: Arc<Mutex<()>>,
}

/// What was found at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found {
    /// No file: a first start.
    Nothing,
    /// Directives that were written so long ago by this machine's clock.
    Directives(Duration),
    /// A file that was not taken up, and why in one word.
    Refused(&'static str),
}

/// Why directives could not be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// The system would not write the file.
    #[error("{path}: {source}", path = path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is more to keep than a file may hold.
    #[error("what is held takes more than {BYTES_MAX} bytes")]
    TooLarge,
    /// What is held cannot be written as JSON.
    #[error(transparent)]
    Text(#[from] serde_json::Error),
}

impl Keepsake {
    pub(crate) fn new(path: PathBuf, owner: Owner) -> Self {
        Self { path, owner, writing: Arc::default() }
    }

    /// Reads what an earlier process kept, and says in the log what became of it.
    pub(crate) fn read(&self) -> (Found, Option<Kept>) {
        let path = self.path.display();
        match read(&self.path) {
            Ok(None) => {
                tracing::info!(%path, "no directives were kept; starting without");
                (Found::Nothing, None)
            }
            Ok(Some(text)) => match Kept::of_text(&text, &self.owner) {
                Ok((kept, written_at)) => {
                    let age = since_1970().saturating_sub(written_at);
                    let (age_s, buckets) = (age.as_secs(), kept.buckets.len());
                    let killed = kept.kill.is_killed();
                    tracing::info!(%path, age_s, buckets, killed, "starting from the directives that were kept");
                    (Found::Directives(age), Some(kept))
                }
                Err(unfit) => refused(&self.path, &unfit, unfit.label()),
            },
            // What is no text was not written here, or is torn.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                refused(&self.path, &Unfit::Torn, Unfit::Torn.label())
            }
            Err(error) => refused(&self.path, &error, "unreadable"),
        }
    }

    /// Writes what holds now, so that a reader finds the whole of it or of what was there before, whenever the process
    /// or the machine dies. Blocks.
    pub(crate) fn write(&self, kept: Kept) -> Result<(), KeepError> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = since_1970();
        let mut text = kept.to_text(&self.owner, now)?;
        if text.len() as u64 > BYTES_MAX {
            text = kept.classes_only().to_text(&self.owner, now)?;
        }
        if text.len() as u64 > BYTES_MAX {
            return Err(KeepError::TooLarge);
        }
        let beside = beside(&self.path);
        write_and_rename(&beside, &self.path, text.as_bytes()).map_err(|source| {
            // What could not be finished must not take up the room that was missing.
            let _ = fs::remove_file(&beside);
            KeepError::Write { path: self.path.clone(), source }
        })
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display, label: &'static str) -> (Found, Option<Kept>) {
    let path = path.display();
    tracing::warn!(%path, %why, "the directives that were kept are not taken up; starting without");
    (Found::Refused(label), None)
}

/// The text of a file; `None` where there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    // One byte more, so that what is too long does not look whole.
    file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn write_and_rename(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

/// A name in the same directory, as renaming is atomic only within one file system.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests;
