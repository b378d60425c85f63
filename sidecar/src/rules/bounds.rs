//! The bounds of rules files and of descriptors, independent of what a file or a proxy contains.

use plimsoll_core::names::NAME_BYTES_MAX;

/// Maximum number of entries in a descriptor, and so the maximum depth of rules.
pub const ENTRIES_MAX: usize = 16;
/// Maximum bytes of a key of a descriptor, and of a key, a value and a domain of a rule.
pub const ENTRY_BYTES_MAX: usize = 1_024;
/// Maximum number of domains in a file.
pub const DOMAINS_MAX: usize = 1_000;
/// Maximum number of rules for descriptors in a file, nested rules included.
pub const DESCRIPTOR_RULES_MAX: usize = 10_000;
/// Maximum number of rules for requests over HTTP in a file: each request is compared with them in
/// order.
pub const HTTP_RULES_MAX: usize = 500;
/// Maximum number of names in `buckets`.
pub const NAMES_MAX: usize = 10_000;

// A bucket from the value of an entry may have any name.
const _: () = assert!(ENTRY_BYTES_MAX >= NAME_BYTES_MAX);
