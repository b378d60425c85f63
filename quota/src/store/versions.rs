//! Checks the lists of tables before the database reads them. The database trusts the lengths in
//! them, and a damaged length makes it ask for more memory than there is.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::error::OpenError;

const KEYSPACES: &str = "keyspaces";
const CURRENT: &str = "current";

/// Checks the list of tables of every keyspace. The database handles a keyspace without one.
pub(super) fn check(database: &Path) -> Result<(), OpenError> {
    let keyspaces = database.join(KEYSPACES);
    let entries = match fs::read_dir(&keyspaces) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(OpenError::io(&keyspaces))?,
    };
    for entry in entries {
        let folder = entry.map_err(OpenError::io(&keyspaces))?.path();
        if let Some(damaged) = damaged(&folder).map_err(OpenError::io(&folder))? {
            return Err(OpenError::Damaged {
                path: damaged,
                reason: "its checksum is wrong".to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns the list of a keyspace if it is damaged.
fn damaged(folder: &Path) -> io::Result<Option<PathBuf>> {
    let current = match fs::read(folder.join(CURRENT)) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        current => current?,
    };
    let number = current
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let checksum = current
        .get(8..)
        .and_then(|rest| rest.first_chunk())
        .map(|bytes| u128::from_le_bytes(*bytes));
    let Some((number, checksum)) = number.zip(checksum) else {
        return Ok(Some(folder.join(CURRENT)));
    };
    let path = folder.join(format!("v{number}"));
    match fs::read(&path) {
        Ok(list) if xxh3_128(&list) == checksum => Ok(None),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(Some(path)),
    }
}
