//! The files of certificates and keys, by the names that every tier looks for.

use std::path::Path;

use anyhow::Context;
use plimsoll_host::{atomic_file, private_directory, regular_file};
pub(super) use plimsoll_tls::{
    CA_FILE as CA_CERTIFICATE, CERTIFICATE_FILE as CERTIFICATE, KEY_FILE as KEY,
};

use crate::cmd::unusable;

/// Key of a CA. It signs, and must not be on a machine that runs a tier.
pub(super) const CA_KEY: &str = "ca.key";
pub(super) const PUBLIC: u32 = 0o644;
pub(super) const SECRET: u32 = 0o600;

const FILE_BYTES_MAX: usize = 1 << 20;

/// Reads a PEM file.
///
/// # Errors
/// It cannot be read; `hint` is the remedy.
pub(super) fn read_text(path: &Path, hint: &str) -> anyhow::Result<String> {
    let place = path.display();
    let bytes = regular_file::read_whole(path, FILE_BYTES_MAX)
        .map_err(|error| unusable(format_args!("cannot read {place}: {error}; {hint}")))?;
    String::from_utf8(bytes)
        .map_err(|_| unusable(format_args!("{place} is not PEM, which is text; {hint}")))
}

/// Creates a directory for only its owner, unless it exists.
///
/// # Errors
/// It cannot be created.
pub(super) fn create_directory(path: &Path) -> anyhow::Result<()> {
    private_directory::create(path)
        .with_context(|| format!("cannot create the directory {}", path.display()))
}

pub(super) fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = atomic_file::replace_for_its_owner(path, text.as_bytes(), mode);
    written.with_context(|| format!("cannot write {}", path.display()))
}
