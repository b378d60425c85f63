//! The files of a log, to be read: `audit.log.1`, `audit.log.2`, .., `audit.log` with consecutive
//! lines, and `audit.head`, which names the last line.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_host::atomic_file::directory_of;
use plimsoll_host::regular_file;

use super::line::{Head, LINE_BYTES_MAX};
use super::verify::{Fault, Kind, Verified, Verifier};

#[cfg(test)]
mod tests;

/// The file with the latest lines, in the state directory.
pub const LOG: &str = "audit.log";
pub(super) const HEAD: &str = "audit.head";
const HEAD_BYTES_MAX: usize = 4 << 10;
const BLOCK_BYTES: usize = 64 << 10;
/// The number of attempts to open files that are being rotated.
const ATTEMPTS_MAX: usize = 3;

/// A log that is open for reading. Files that are rotated or removed in the meantime are read
/// anyway.
#[derive(Debug)]
pub struct Snapshot {
    /// The content of `audit.head`; `None` without that file, and for a single file.
    head: Result<Option<Head>, Fault>,
    /// True for the whole log, which must have a head.
    is_whole: bool,
    /// The files, the oldest first.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    file: File,
    /// The bytes to read: `from` is the first, and `to` the size when it was opened.
    from: u64,
    to: u64,
}

// === impl Snapshot ===

impl Snapshot {
    /// Opens a log: the path of a state directory or of the file `audit.log` stands for all its
    /// files. Any other file is read without the rest, such as a file of an archive.
    ///
    /// # Errors
    /// When there is no log, or one of its files cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let log = if path.is_dir() {
            path.join(LOG)
        } else {
            path.to_owned()
        };
        if log.file_name().is_none_or(|name| name != LOG) {
            return Ok(Self {
                head: Ok(None),
                is_whole: false,
                parts: vec![Part::open(&log)?],
            });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let files = rotated(&log)?;
            let head = read_head(&log.with_file_name(HEAD));
            let snapshot = Self::open_whole(&log, &files, head);
            // A rotation in the meantime would look like a removed file.
            let is_settled = rotated(&log).is_ok_and(|again| again == files);
            match snapshot {
                Ok(snapshot) if is_settled || attempts == ATTEMPTS_MAX => return Ok(snapshot),
                Err(error) if is_settled || attempts == ATTEMPTS_MAX => return Err(error),
                _ => {}
            }
        }
    }

    fn open_whole(
        log: &Path,
        rotated: &BTreeMap<u32, PathBuf>,
        head: io::Result<Option<Head>>,
    ) -> io::Result<Self> {
        let head = match head {
            Ok(head) => Ok(head),
            Err(error) if is_damage(&error) => {
                let file = log.with_file_name(HEAD).display().to_string();
                Err(Fault {
                    kind: Kind::Edited,
                    file,
                    line: 1,
                    why: error.to_string(),
                })
            }
            Err(error) => return Err(error),
        };
        let mut parts = rotated
            .values()
            .map(|path| Part::open(path))
            .collect::<io::Result<Vec<_>>>()?;
        match Part::open(log) {
            Ok(part) => parts.push(part),
            // After a crash in a rotation there is none: it was renamed, and the next line was not written yet.
            Err(error) if error.kind() == ErrorKind::NotFound && !matches!(head, Ok(None)) => {}
            Err(error) => return Err(error),
        }
        Ok(Self {
            head,
            is_whole: true,
            parts,
        })
    }

    /// The head, if it can be read.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref().ok()?.as_ref()
    }

    /// Keeps only the last `count` lines.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn last(&mut self, count: u64) -> io::Result<()> {
        let mut left = count;
        for part in self.parts.iter_mut().rev() {
            part.from = part.start_of_last(&mut left)?;
        }
        Ok(())
    }

    /// Calls `take` with the name of the file and each line with its line feed. A line that is too
    /// long arrives in pieces.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn each_line(&mut self, mut take: impl FnMut(&str, &[u8])) -> io::Result<()> {
        for part in &mut self.parts {
            let name = part.name.clone();
            each_line(part.reader()?, |line| take(&name, line))?;
        }
        Ok(())
    }

    /// Calls `take` with pieces of all lines, until it returns false.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn each_chunk(&mut self, mut take: impl FnMut(Vec<u8>) -> bool) -> io::Result<()> {
        for part in &mut self.parts {
            let mut reader = part.reader()?;
            loop {
                let mut chunk = Vec::with_capacity(BLOCK_BYTES);
                if reader
                    .by_ref()
                    .take(BLOCK_BYTES as u64)
                    .read_to_end(&mut chunk)?
                    == 0
                {
                    break;
                }
                if !take(chunk) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Verifies all lines; not after [`last`](Self::last), since lines that are left out are missing.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn verify(mut self) -> io::Result<Result<Verified, Fault>> {
        let head = match self.head.clone() {
            Err(fault) => return Ok(Err(fault)),
            Ok(head) => head,
        };
        let lacks_head = self.is_whole && head.is_none();
        let (mut verifier, mut end) = (Verifier::new(head), (String::new(), 1));
        for part in &mut self.parts {
            // The line after the last one.
            end = (part.name.clone(), 1);
            verifier.file(&part.name);
            each_line(part.reader()?, |line| {
                end.1 += 1;
                verifier.line(line);
            })?;
        }
        let verified = verifier.finish();
        Ok(verified.and_then(|verified| match end {
            (file, line) if lacks_head => Err(Fault {
                kind: Kind::Truncated,
                file,
                line,
                why: "the head is missing, so that lines may be missing at the end".to_owned(),
            }),
            _ => Ok(verified),
        }))
    }
}

// === impl Part ===

impl Part {
    fn open(path: &Path) -> io::Result<Self> {
        let file = regular_file::open(path)?;
        let to = file.metadata()?.len();
        Ok(Self {
            name: path.display().to_string(),
            file,
            from: 0,
            to,
        })
    }

    fn reader(&mut self) -> io::Result<impl Read> {
        self.file.seek(SeekFrom::Start(self.from))?;
        Ok((&self.file).take(self.to.saturating_sub(self.from)))
    }

    /// Returns the byte at which the last `left` lines begin, and reduces `left` by the lines that were found.
    fn start_of_last(&mut self, left: &mut u64) -> io::Result<u64> {
        if *left == 0 {
            return Ok(self.to);
        }
        let (mut starts, mut at) = (VecDeque::new(), self.from);
        let most = usize::try_from(*left).unwrap_or(usize::MAX);
        each_line(self.reader()?, |line| {
            starts.push_back(at);
            at += line.len() as u64;
            if starts.len() > most {
                starts.pop_front();
            }
        })?;
        *left -= starts.len() as u64;
        Ok(starts.front().copied().unwrap_or(self.to))
    }
}

pub(super) fn each_line(file: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader
            .by_ref()
            .take(LINE_BYTES_MAX as u64)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(());
        }
        take(&line);
    }
}

/// Returns the rotated files by their numbers, the oldest first.
pub(super) fn rotated(log: &Path) -> io::Result<BTreeMap<u32, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory_of(log))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix(LOG)?.strip_prefix('.')?;
            // A copy such as `audit.log.01` would take the place of a file.
            digits
                .parse()
                .ok()
                .filter(|number: &u32| number.to_string() == digits)
        });
        if let Some(number) = number {
            files.insert(number, log.with_file_name(name));
        }
    }
    Ok(files)
}

/// Reads the head of a log; `None` without a file.
pub(super) fn read_head(path: &Path) -> io::Result<Option<Head>> {
    match regular_file::read(path, HEAD_BYTES_MAX) {
        Ok(bytes) => {
            let invalid = |error| {
                io::Error::new(
                    ErrorKind::InvalidData,
                    format!("it is no head of a log: {error}"),
                )
            };
            serde_json::from_slice(&bytes).map(Some).map_err(invalid)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a file has other content than the controller wrote; false if it cannot be read.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::InvalidInput
    )
}
