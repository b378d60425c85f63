//! The data directory with the database: its lock, its format, and the number of the last commit on
//! disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use plimsoll_host::atomic_file::{self, sync_directory};
use plimsoll_host::private_directory;

use super::error::OpenError;

const FORMAT: u32 = 1;
const FORMAT_FILE: &str = "format";
const LOCK_FILE: &str = "lock";
const SYNCED_FILE: &str = "synced";
const STORE: &str = "store";
/// Exists while the database is created.
const CREATING_FILE: &str = "creating";
/// A new ext4 file system has this directory.
const LOST_FOUND: &str = "lost+found";

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    synced: File,
    _lock: File,
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        private_directory::create(path).map_err(OpenError::io(path))?;
        let is_ours = path.join(FORMAT_FILE).exists();
        if !is_ours && !is_empty(path)? {
            return Err(OpenError::Foreign {
                path: path.to_owned(),
            });
        }
        let open = |name: &str| {
            let path = path.join(name);
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(OpenError::io(&path))
        };
        let lock = open(LOCK_FILE)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(OpenError::io(&path.join(LOCK_FILE))(error));
            }
        }
        let directory = Self {
            path: path.to_owned(),
            synced: open(SYNCED_FILE)?,
            _lock: lock,
        };
        if is_ours {
            directory.check_format()?
        } else {
            directory.write_format()?
        }
        Ok(directory)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// Returns true if the database does not exist, or nothing was saved in it because its creation
    /// was cut short.
    pub(super) fn is_new(&self) -> bool {
        !self.store().exists() || self.path.join(CREATING_FILE).exists()
    }

    /// Creates the database with `create`. It has its final name from the beginning, because the
    /// first journal of a reopened database has no space allocated ahead, which makes each
    /// synchronisation slower.
    pub(super) fn create_store<T>(
        &self,
        create: impl FnOnce(&Path) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let (creating, store) = (self.path.join(CREATING_FILE), self.store());
        File::create(&creating)
            .and_then(|file| file.sync_all())
            .map_err(OpenError::io(&creating))?;
        self.sync()?;
        if let Err(error) = fs::remove_dir_all(&store)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(OpenError::io(&store)(error));
        }
        private_directory::create(&store).map_err(OpenError::io(&store))?;
        let created = create(&store)?;
        fs::remove_file(&creating).map_err(OpenError::io(&creating))?;
        self.sync()?;
        Ok(created)
    }

    /// Returns the number of the last commit on disk. `None` if unknown.
    pub(super) fn synced(&self) -> Option<u64> {
        let mut numbers = [[0; 8]; 2];
        let bytes = numbers.as_flattened_mut();
        self.synced.read_exact_at(bytes, 0).ok()?;
        let [number, check] = numbers.map(u64::from_le_bytes);
        (check == !number).then_some(number)
    }

    /// Notes the number of a commit that is on disk. The note may be behind after a power failure,
    /// never ahead.
    pub(super) fn set_synced(&self, number: u64) {
        let numbers = [number, !number].map(u64::to_le_bytes);
        // The commit is safe without the note, which only makes damage visible.
        let _ = self.synced.write_all_at(numbers.as_flattened(), 0);
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let path = self.path.join(FORMAT_FILE);
        let text = fs::read_to_string(&path).map_err(OpenError::io(&path))?;
        match text.trim().parse() {
            Ok(FORMAT) => Ok(()),
            Ok(found) if found > FORMAT => Err(OpenError::Newer {
                path,
                found,
                known: FORMAT,
            }),
            _ => {
                let reason = format!("it must hold the format of the directory, {FORMAT}");
                Err(OpenError::Damaged { path, reason })
            }
        }
    }

    fn write_format(&self) -> Result<(), OpenError> {
        let path = self.path.join(FORMAT_FILE);
        let text = format!("{FORMAT}\n");
        atomic_file::replace(&path, text.as_bytes()).map_err(OpenError::io(&path))
    }

    fn sync(&self) -> Result<(), OpenError> {
        sync_directory(&self.path).map_err(OpenError::io(&self.path))
    }
}

/// Returns true for an empty directory, or one with the remains of a start that was cut short.
fn is_empty(path: &Path) -> Result<bool, OpenError> {
    for entry in fs::read_dir(path).map_err(OpenError::io(path))? {
        let name = entry.map_err(OpenError::io(path))?.file_name();
        let known = [LOCK_FILE, SYNCED_FILE, LOST_FOUND, "format.new"];
        if !known.iter().any(|known| name == *known) {
            return Ok(false);
        }
    }
    Ok(true)
}
