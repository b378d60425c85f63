//! The bounds of rules files and of descriptors: what a sidecar has room for, whatever a file or a proxy holds.

use plimsoll_core::names::NAME_BYTES_MAX;

/// The entries of a descriptor, and with it the depth of rules.
pub const ENTRIES_MAX: usize = 16;
/// The length of a key of a descriptor, and of a key, a value and a domain of a rule, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1_024;
/// The domains of a file.
pub const DOMAINS_MAX: usize = 1_000;
/// The rules for descriptors in a file, nested ones included.
pub const DESCRIPTOR_RULES_MAX: usize = 10_000;
/// The rules for requests over HTTP in a file: each request is compared with them in order.
pub const HTTP_RULES_MAX: usize = 500;
/// The names that `buckets` lists.
pub const NAMES_MAX: usize = 10_000;

// A bucket from the value of an entry may have any name.
const _: () = assert!(ENTRY_BYTES_MAX >= NAME_BYTES_MAX);
