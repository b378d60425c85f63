//! The audit log: an append-only, hash-chained record of each command and each change that the controller makes
//! by itself.
//!
//! * `line`: the content of a line, and the chain that the lines form. Pure.
//! * `verify`: finds the first line that was edited, removed, reordered or truncated. Pure.
//! * `files`: the files of a log, to be read: rotated ones, the present one, and the head.
//! * `writer`: appends lines, repairs what a crash left, and rotates.
//! * `shared`: the latest lines of all leaders, for the next one.
//! * `log`: the handle of the controller, the lines that wait for the disk, and what becomes of them while it fails.
//!
//! A command that can add refusals waits until its line is durable, and is refused if that fails. A command that
//! only removes refusals is carried out first: its line is written as soon as the disk allows.

mod files;
mod line;
mod log;
mod shared;
mod verify;
mod writer;

pub use self::files::{LOG, Snapshot};
pub(crate) use self::line::{Actor, Entry, cut};
pub use self::line::{Head, LINE_BYTES_MAX, Line, Record};
pub(crate) use self::log::{AuditLog, Logged, NotLogged};
pub(crate) use self::shared::SharedLines;
pub use self::shared::ShownLine;
pub use self::verify::{Fault, Kind, Verified, Verifier};

/// The route that answers the lines of the log.
pub const ROUTE: &str = "/audit";
/// The header of its answer with the head of the log.
pub const HEAD_HEADER: &str = "plimsoll-audit-head";
