//! The state file: a header line with format version and checksum, then the state as JSON. It is written
//! beside the old one and renamed over it, so that a crash at any point leaves one of the two.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::state::DurableState;

/// The first word of the header line.
const MAGIC: &str = "plimsoll-state";
/// The version of the format.
const VERSION: &str = "1";
/// The name of the checksum: XXH3 with 64 bits over the body, as 16 hex digits.
const CHECKSUM: &str = "xxh3";

/// Why a state file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The operating system refused to read it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first line is another one than a controller writes.
    #[error("the header of the state file is not `{MAGIC} {VERSION} {CHECKSUM} CHECKSUM`")]
    Header,
    /// The body is not the one that was written.
    #[error("the checksum of the state file is wrong: it was cut short or changed")]
    Checksum,
    /// The body was written so, and is no state.
    #[error("the state file holds no state: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads the state at `path`; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<DurableState>, ReadError> {
    match fs::read(path) {
        Ok(bytes) => decode(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the file `name` in `directory` by `durable`, which is on disk when this returns.
pub(super) fn replace(directory: &Path, name: &str, durable: &DurableState) -> io::Result<()> {
    let bytes = encode(durable)?;
    // One fixed name: what a crash leaves of it is overwritten by the next save.
    let beside = directory.join(format!("{name}.new"));
    let mut file = create(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&beside, directory.join(name))?;
    // The rename itself is an entry of the directory.
    sync_directory(directory)
}

/// Creates the empty file `name` in `directory`, unless it exists.
pub(super) fn create_marker(directory: &Path, name: &str) -> io::Result<()> {
    let marker = directory.join(name);
    if marker.try_exists()? {
        return Ok(());
    }
    File::create(marker)?.sync_all()?;
    sync_directory(directory)
}

/// Creates a directory with its parents, all of them on disk when this returns.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let created = directory.ancestors().take_while(missing).count();
    fs::create_dir_all(directory)?;
    for path in directory.ancestors().take(created) {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
            _ => sync_directory(Path::new("."))?,
        }
    }
    Ok(())
}

/// Makes a file readable by its owner alone, for the fleet's key is in it. Errors are ignored: some file
/// systems have no permissions.
pub(super) fn restrict(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let file = options.open(path)?;
    // The mode above counts for new files only.
    restrict(path);
    Ok(file)
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Does nothing: a directory cannot be opened as a file here.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

fn encode(durable: &DurableState) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(durable)?;
    let mut bytes = format!("{}\n", header(&body)).into_bytes();
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<DurableState, ReadError> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(ReadError::Header)?;
    let (found, body) = (&bytes[..end], &bytes[end + 1..]);
    let expected = header(body);
    if found != expected.as_bytes() {
        let is_ours = found.starts_with(format!("{MAGIC} {VERSION} {CHECKSUM} ").as_bytes());
        return Err(if is_ours { ReadError::Checksum } else { ReadError::Header });
    }
    Ok(serde_json::from_slice(body)?)
}

fn header(body: &[u8]) -> String {
    format!("{MAGIC} {VERSION} {CHECKSUM} {:016x}", xxh3_64(body))
}
