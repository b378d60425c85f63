//! The state file: a header line with format version and checksum, then the state as JSON.

use std::fs;
use std::io;
use std::path::Path;

use plimsoll_host::regular_file;
use xxhash_rust::xxh3::xxh3_64;

use crate::state::DurableState;

const MAGIC: &str = "plimsoll-state";
const VERSION: &str = "1";
/// The name of the checksum: XXH3 with 64 bits over the body, as 16 hex digits.
const CHECKSUM: &str = "xxh3";
/// Maximum size of a state file that is read or written: far more than a state takes.
const STATE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("its format is version {0}, and this build reads version {VERSION}")]
    Version(String),
    /// The first line is another one than a controller writes.
    #[error("its header is damaged: it is not `{MAGIC} {VERSION} {CHECKSUM} CHECKSUM`")]
    Header,
    /// The body differs from the written body.
    #[error("it is damaged: its checksum is wrong, so it was cut short or changed")]
    Checksum,
    #[error("its checksum is right, but this build cannot read its content: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads the state at `path`; `None` without a file.
pub(super) fn read(path: &Path) -> Result<Option<DurableState>, ReadError> {
    // A link to a missing file is damage, and not a first start.
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    decode(&regular_file::read_whole(path, STATE_BYTES_MAX)?).map(Some)
}

/// Makes a regular file readable only by its owner, because the fleet's key is in it. Errors are
/// ignored: some file systems have no permissions.
pub(super) fn restrict(path: &Path) {
    #[cfg(unix)]
    // The target of a link belongs to others.
    if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}

pub(super) fn encode(durable: &DurableState) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(durable)?;
    let mut bytes = format!("{}\n", header(&body)).into_bytes();
    bytes.extend_from_slice(&body);
    if bytes.len() <= STATE_BYTES_MAX {
        return Ok(bytes);
    }
    let error = format!("the state is larger than {} MiB", STATE_BYTES_MAX >> 20);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, error))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<DurableState, ReadError> {
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(ReadError::Header)?;
    let (found, body) = (&bytes[..end], &bytes[end + 1..]);
    if found == header(body).as_bytes() {
        return Ok(serde_json::from_slice(body)?);
    }
    match std::str::from_utf8(found)
        .unwrap_or_default()
        .split(' ')
        .collect::<Vec<_>>()[..]
    {
        [MAGIC, VERSION, CHECKSUM, ..] => Err(ReadError::Checksum),
        [MAGIC, version, ..] if version != VERSION && version.parse::<u16>().is_ok() => {
            Err(ReadError::Version(version.to_owned()))
        }
        _ => Err(ReadError::Header),
    }
}

fn header(body: &[u8]) -> String {
    format!("{MAGIC} {VERSION} {CHECKSUM} {:016x}", xxh3_64(body))
}
