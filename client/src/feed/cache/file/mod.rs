//! The file of the cache: read once at the start, written off the request path, whole or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::directive::{BucketDirective, Directives};
use plimsoll_host::{atomic_file, regular_file};

use super::snapshot::{self, Owner};
use crate::hot::sync::lock;

/// Maximum length of a cache file.
pub(crate) const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The place of a cache file, with the owner of its directives.
#[derive(Clone)]
pub(crate) struct CacheFile {
    pub(crate) path: PathBuf,
    owner: Owner,
    /// Held during a write: an orderly stop may come in the middle of one.
    writing: Arc<Mutex<()>>,
}

impl CacheFile {
    pub(crate) fn new(path: PathBuf, owner: Owner) -> Self {
        Self {
            path,
            owner,
            writing: Arc::default(),
        }
    }

    /// Returns the directives of the file; `None` without one, or if it is rejected, which is logged.
    pub(crate) fn read(&self) -> Option<Directives> {
        let path = self.path.display();
        let read = match read(&self.path) {
            Ok(None) => {
                tracing::info!(%path, "no directive cache; starting without directives");
                return None;
            }
            Ok(Some(bytes)) => {
                snapshot::read(&bytes, &self.owner).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok((directives, written_at)) => {
                let age_s = now_since_1970().saturating_sub(written_at).as_secs();
                let (buckets, killed) =
                    (directives.buckets.len(), directives.kills.fleet.is_killed());
                tracing::info!(%path, age_s, buckets, killed, "directive cache restored");
                Some(directives)
            }
            Err(error) => {
                tracing::warn!(%path, error, "directive cache rejected; starting without directives");
                None
            }
        }
    }

    /// Writes directives. If there are too many, writes only the directives of classes. If
    /// the process or the machine dies, a reader finds the new file or the former one, whole.
    /// Blocks.
    pub(crate) fn write(&self, mut directives: Directives) -> io::Result<()> {
        let _alone = lock(&self.writing);
        let now = now_since_1970();
        let mut bytes = snapshot::write(directives.clone(), &self.owner, now);
        if bytes.len() > BYTES_MAX {
            let classes_only =
                |bucket: &mut BucketDirective| bucket.keys.retain(|key| key.tenant.is_class());
            directives.buckets.iter_mut().for_each(classes_only);
            bytes = snapshot::write(directives, &self.owner, now);
        }
        if bytes.len() > BYTES_MAX {
            return Err(io::Error::other(format!(
                "the directives take more than {BYTES_MAX} bytes"
            )));
        }
        atomic_file::replace(&self.path, &bytes)
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // One byte more than the largest file is read, so that a longer one does not pass its checksum.
    match regular_file::read(path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn now_since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
