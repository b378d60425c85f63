//! The policy files: reads the two as one policy. `watch` reports changes of their content.

#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_host::regular_file;
use plimsoll_policy::{FILE_BYTES_MAX, ONE_CLASS_TENANTS, Policy, PolicyError, PolicyHash, Source, Warning};

use crate::tasks::unix_s;
use watch::READ_MAX;

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
    /// The disk of a file has not answered for this long.
    #[error("no answer from the disk of {} within {} s", path.display(), READ_MAX.as_secs())]
    Silent {
        /// The first file.
        path: PathBuf,
    },
    /// A file was read and is not valid.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

/// The two files as bytes, each at most one byte longer than is allowed.
#[derive(PartialEq, Eq)]
struct Content {
    policy: Vec<u8>,
    tenants: Vec<u8>,
}

// === impl PolicyFiles ===

impl PolicyFiles {
    /// Reads both files as one policy. Blocks; reads at most one byte more than the largest file allowed.
    ///
    /// # Errors
    /// When a file cannot be read, or the two are no policy.
    pub fn read(&self) -> Result<(Policy, Vec<Warning>), ReadError> {
        Ok(self.parse(&self.content(bytes_of)?)?)
    }

    /// Returns the hash of both files as they are now. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hash(&self) -> Result<PolicyHash, ReadError> {
        Ok(self.content(bytes_of)?.hash())
    }

    /// Returns the content of both files. `read` returns the bytes of one.
    fn content(&self, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Content, (PathBuf, io::Error)> {
        let mut content = self.content_once(&read)?;
        // Links may be swapped between the readings of the two files: another reading then finds two of one
        // version.
        for _ in 0..READINGS_MAX {
            let again = self.content_once(&read)?;
            if again == content {
                break;
            }
            content = again;
        }
        Ok(content)
    }

    fn content_once(
        &self,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Content, (PathBuf, io::Error)> {
        let read = |path: &Path| read(path).map_err(|source| (path.to_owned(), source));
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

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns the bytes of a file; of one that is too large, one byte more than is allowed.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    regular_file::read(path, FILE_BYTES_MAX)
}
