//! Checks the journals before the database reads them. The database silently cuts a journal
//! at the first unreadable entry, and never notices a missing journal. Each commit names the one
//! before it, so a gap is noticed.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::error::OpenError;
use super::row::{COMMIT_KEY, Commit};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
/// Ends a complete batch.
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];
/// Maximum bytes of a value. Parts of the log are smaller.
const VALUE_MAX: usize = 1 << 20;

/// Commits in the journals, without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Number of the commit before the first one.
    pub(super) before: u64,
    /// Number of the last one; `None` if there is none.
    pub(super) last: Option<u64>,
}

/// Reads the commits in all journals of a database. A gap between two of them is an error.
pub(super) fn check(database: &Path) -> Result<Chain, OpenError> {
    let mut journals = files(database).map_err(OpenError::io(database))?;
    journals.sort_by_cached_key(|path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| stem.parse().ok());
        (number.unwrap_or(u64::MAX), path.clone())
    });
    let mut chain = Chain::default();
    for journal in journals {
        check_one(&journal, &mut chain)?;
    }
    Ok(chain)
}

/// Returns the journals of a database, in no order.
pub(super) fn files(database: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(database)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            files.push(path);
        }
    }
    Ok(files)
}

fn check_one(journal: &Path, chain: &mut Chain) -> Result<(), OpenError> {
    let mut reader = BufReader::with_capacity(
        1 << 16,
        File::open(journal).map_err(OpenError::io(journal))?,
    );
    let mut commit = None;
    // Anything that is not an entry is the end, as it is for the database.
    loop {
        let entry = match read(&mut reader) {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(OpenError::io(journal)(error)),
        };
        match entry {
            Entry::Start => commit = None,
            Entry::Commit(number) => commit = Some(number),
            Entry::Other => {}
            Entry::End => {
                let Some(Commit { number, before }) = commit.take() else {
                    continue;
                };
                match chain.last {
                    Some(last) if last != before => {
                        return Err(missing(journal, last, before));
                    }
                    Some(_) => {}
                    None => chain.before = before,
                }
                chain.last = Some(number);
            }
        }
    }
    Ok(())
}

/// Error for commits that are missing before the first one of a journal, or in its middle.
pub(super) fn missing(journal: &Path, last: u64, before: u64) -> OpenError {
    let reason = format!(
        "commits {} to {before}, which were on disk, are missing in or before it",
        last + 1
    );
    OpenError::Damaged {
        path: journal.to_owned(),
        reason,
    }
}

enum Entry {
    Start,
    Commit(Commit),
    Other,
    End,
}

/// Reads an entry; `None` if the bytes are none.
fn read(reader: &mut impl Read) -> io::Result<Option<Entry>> {
    match bytes::<1>(reader)?[0] {
        START => bytes::<12>(reader).map(|_| Some(Entry::Start)),
        END => {
            bytes::<8>(reader)?;
            Ok((bytes::<4>(reader)? == TRAILER).then_some(Entry::End))
        }
        ITEM => {
            // Type, compression and keyspace.
            bytes::<10>(reader)?;
            let key = usize::from(u16::from_le_bytes(bytes(reader)?));
            bytes::<4>(reader)?;
            let value = u32::from_le_bytes(bytes(reader)?) as usize;
            if value > VALUE_MAX {
                return Ok(None);
            }
            let mut row = vec![0; key + value];
            reader.read_exact(&mut row)?;
            let (key, value) = row.split_at(key);
            let commit = (*key == COMMIT_KEY)
                .then(|| Commit::decode(value))
                .flatten();
            Ok(Some(commit.map_or(Entry::Other, Entry::Commit)))
        }
        _ => Ok(None),
    }
}

fn bytes<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
