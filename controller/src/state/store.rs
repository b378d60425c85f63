//! Where the durable state is kept: one file that survives crashes, and a mark that tells a first start from a loss.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::{Database, DatabaseError, ReadableDatabase, TableDefinition, TableError};

use crate::state::Durable;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("controller");
const KEY: &str = "durable";
const FILE: &str = "state.redb";
/// Present once a state was saved: without it, an empty directory is simply new.
const MARK: &str = "initialised";

/// The durable state on disk.
#[derive(Debug)]
pub struct Store {
    /// `None` after a failed write: the database takes no other until it was opened again.
    database: Mutex<Option<Database>>,
    directory: PathBuf,
}

/// What was found when the store was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The state to go on from.
    pub durable: Durable,
    /// Why earlier state is not part of it, if there was some that could not be read.
    pub loss: Option<String>,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made or used.
    #[error("state directory {}: {source}; choose another one with --state-dir", directory.display())]
    Directory {
        /// Which directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another controller has it open.
    #[error("state directory {} is in use by another controller", .0.display())]
    InUse(PathBuf),
    /// The database cannot be made.
    #[error("state directory {}: {reason}", directory.display())]
    Create {
        /// Which directory.
        directory: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A write failed.
    #[error("the durable state cannot be written: {0}")]
    Write(String),
}

impl Store {
    /// Opens the store in `directory`, which is made if it does not exist. State that is there but cannot be read is
    /// put aside, and everything begins in shadow.
    ///
    /// # Errors
    /// When the directory cannot be used, or another controller uses it.
    pub fn open(directory: &Path) -> Result<(Self, Opened), StoreError> {
        let in_directory = |source| StoreError::Directory { directory: directory.to_owned(), source };
        fs::create_dir_all(directory).map_err(in_directory)?;
        let initialised = directory.join(MARK).try_exists().map_err(in_directory)?;
        let file = directory.join(FILE);
        let there = file.try_exists().map_err(in_directory)?;
        let (database, read) = match Database::create(&file) {
            Ok(database) => {
                let read = read(&database);
                (database, read)
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(StoreError::InUse(directory.to_owned())),
            Err(error) if there => {
                let aside = aside(&file);
                fs::rename(&file, &aside).map_err(in_directory)?;
                let reason = format!("{error}; the file was put aside as {}", aside.display());
                (create(&file, directory)?, Err(reason))
            }
            Err(error) => {
                return Err(StoreError::Create {
                    directory: directory.to_owned(),
                    reason: error.to_string(),
                });
            }
        };
        restrict(&file);
        let opened = match read {
            Ok(Some(durable)) => Opened { durable, loss: None },
            Ok(None) if !initialised => Opened { durable: Durable::first_start(), loss: None },
            Ok(None) => {
                Opened { durable: Durable::lost(), loss: Some("the saved state is missing".to_owned()) }
            }
            Err(reason) => Opened { durable: Durable::lost(), loss: Some(reason) },
        };
        Ok((Self { database: Mutex::new(Some(database)), directory: directory.to_owned() }, opened))
    }

    /// Writes the state; it is on disk when this returns.
    ///
    /// # Errors
    /// When it could not be written; what was there before stays, and another attempt may do better.
    pub fn save(&self, durable: &Durable) -> Result<(), StoreError> {
        let mut held = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let written = held.take().map_or_else(|| self.open_again(), Ok).and_then(|database| {
            self.write(&database, durable)?;
            Ok(database)
        });
        match written {
            Ok(database) => {
                *held = Some(database);
                Ok(())
            }
            Err(error) => Err(StoreError::Write(error.to_string())),
        }
    }

    fn open_again(&self) -> Result<Database, Box<dyn std::error::Error>> {
        let file = self.directory.join(FILE);
        let database = Database::create(&file)?;
        restrict(&file);
        Ok(database)
    }

    fn write(&self, database: &Database, durable: &Durable) -> Result<(), Box<dyn std::error::Error>> {
        let bytes = serde_json::to_vec(durable)?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?.insert(KEY, bytes.as_slice())?;
        transaction.commit()?;
        let mark = self.directory.join(MARK);
        if !mark.try_exists()? {
            fs::File::create(mark)?.sync_all()?;
        }
        Ok(())
    }
}

fn create(file: &Path, directory: &Path) -> Result<Database, StoreError> {
    Database::create(file)
        .map_err(|error| StoreError::Create { directory: directory.to_owned(), reason: error.to_string() })
}

/// Nobody else is to read the file: the fleet's key is in it. Where files have no modes, whoever set that up has chosen so.
fn restrict(file: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(file, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = file;
}

/// A name next to `file` that is not taken.
fn aside(file: &Path) -> PathBuf {
    let free = (1..).map(|n| file.with_extension(format!("redb.unreadable-{n}"))).find(|path| !path.exists());
    free.unwrap_or_else(|| file.with_extension("redb.unreadable"))
}

/// The saved state; `None` where there is none, an error where there is one that cannot be read.
fn read(database: &Database) -> Result<Option<Durable>, String> {
    let transaction = database.begin_read().map_err(|error| error.to_string())?;
    let table = match transaction.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let Some(bytes) = table.get(KEY).map_err(|error| error.to_string())? else { return Ok(None) };
    serde_json::from_slice(bytes.value()).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::directive::Epoch;

    fn open(directory: &Path) -> (Store, Opened) {
        Store::open(directory).unwrap()
    }

    #[test]
    fn what_was_saved_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("a/b");
        let (store, opened) = open(&state);
        assert_eq!(opened, Opened { durable: Durable::first_start(), loss: None });
        let durable = Durable { epoch: Epoch(41), ..Durable::first_start() };
        store.save(&durable).unwrap();
        assert!(matches!(Store::open(&state), Err(StoreError::InUse(_))));
        drop(store);
        assert_eq!(open(&state).1, Opened { durable, loss: None });
    }

    #[test]
    #[cfg(unix)]
    fn nobody_else_can_read_the_fleets_key() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        drop(open(directory.path()));
        assert_eq!(mode(), 0o600);
        // One that was written before is closed at the next start.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        drop(open(directory.path()));
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn state_that_cannot_be_read_is_a_loss_and_not_a_first_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        for spoil in [
            &|| fs::write(&file, "this is no database").unwrap() as (),
            &|| fs::remove_file(&file).unwrap(),
            &|| fs::write(&file, b"").unwrap(),
        ] as [&dyn Fn(); 3]
        {
            let (store, _) = open(directory.path());
            store.save(&Durable { epoch: Epoch(9), ..Durable::first_start() }).unwrap();
            drop(store);
            spoil();
            let (_store, opened) = open(directory.path());
            assert!(opened.loss.is_some());
            assert_eq!(opened.durable, Durable::lost());
        }
        assert!(directory.path().join("state.redb.unreadable-1").exists(), "nothing is thrown away");
    }
}
