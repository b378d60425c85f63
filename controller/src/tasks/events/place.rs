//! Where events are kept over restarts: two files of the state directory, or a document of the store that several
//! controllers share, for the next leader.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_host::regular_file;
use tokio::runtime::Handle;

use super::Event;
use super::list::EVENTS_MAX;
use super::log::EventLog;
use crate::state::store::document::Unread;
use crate::state::store::etcd::EtcdStore;

/// The latest events, an object a line.
const FILE: &str = "events.ndjson";
/// The events before those.
const EARLIER: &str = "events.ndjson.1";
/// Maximum size of each file in bytes. A larger one is not read.
const FILE_BYTES_MAX: usize = 4 << 20;
/// The document of the store.
const DOCUMENT: &str = "events";
/// Maximum number of events in the store, which are written again with each new one.
const STORED_MAX: usize = 1_000;

#[derive(Debug)]
pub(crate) enum EventPlace {
    Directory(EventFiles),
    Store(Arc<EtcdStore>),
}

#[derive(Debug)]
pub(crate) struct EventFiles {
    directory: PathBuf,
    /// The file to append to, and its size in bytes; `None` before the first event, and after a failure.
    open: Option<(File, usize)>,
}

// === impl EventPlace ===

impl EventPlace {
    pub(crate) fn directory(directory: &Path) -> Self {
        Self::Directory(EventFiles {
            directory: directory.to_owned(),
            open: None,
        })
    }

    /// Reads what is there. Blocks.
    pub(super) fn read(&mut self) -> io::Result<Vec<Event>> {
        match self {
            Self::Directory(files) => files.read(),
            Self::Store(store) => match Handle::current().block_on(store.read(DOCUMENT)) {
                Ok(bytes) => Ok(bytes.map(|bytes| lines(&bytes)).unwrap_or_default()),
                Err(Unread::Store(error)) => Err(io::Error::other(error)),
                Err(damage) => Err(io::Error::new(io::ErrorKind::InvalidData, damage)),
            },
        }
    }

    /// Writes the events after the number `saved`; to a store, the latest events again. Blocks.
    pub(super) fn write(&mut self, log: &EventLog, saved: u64) -> io::Result<()> {
        match self {
            Self::Directory(files) => {
                let unsaved = log.page(saved, i64::MIN, EVENTS_MAX).events;
                let written = files.append(&unsaved);
                // Opened anew after a failure, which may have left a part of a line.
                files.open.take_if(|_| written.is_err());
                written
            }
            Self::Store(store) => {
                let mut bytes = Vec::new();
                for event in log.latest(STORED_MAX) {
                    bytes.extend(line(&event)?);
                }
                let write = store.write(vec![(DOCUMENT, bytes)], None);
                Handle::current().block_on(write).map_err(io::Error::other)
            }
        }
    }
}

// === impl EventFiles ===

impl EventFiles {
    fn read(&self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for name in [EARLIER, FILE] {
            match regular_file::read_whole(&self.directory.join(name), FILE_BYTES_MAX) {
                Ok(bytes) => events.extend(lines(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
            }
        }
        Ok(events)
    }

    fn append(&mut self, events: &[Event]) -> io::Result<()> {
        let path = self.directory.join(FILE);
        for event in events {
            let line = line(event)?;
            let (mut file, mut bytes) = self.open.take().map_or_else(|| open(&path), Ok)?;
            if bytes.saturating_add(line.len()) > FILE_BYTES_MAX {
                fs::rename(&path, self.directory.join(EARLIER))?;
                (file, bytes) = open(&path)?;
            }
            file.write_all(&line)?;
            self.open = Some((file, bytes + line.len()));
        }
        self.open
            .as_ref()
            .map_or(Ok(()), |(file, _)| file.sync_data())
    }
}

/// Opens the file to append to. Returns its size in bytes, too.
fn open(path: &Path) -> io::Result<(File, usize)> {
    let mut file = regular_file::open_to_append(path)?;
    if !regular_file::ends_with_line(&mut file)? {
        // A crash tore the last line, which is not read again.
        file.write_all(b"\n")?;
    }
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    Ok((file, bytes))
}

fn line(event: &Event) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the lines that are whole.
fn lines(bytes: &[u8]) -> Vec<Event> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}
