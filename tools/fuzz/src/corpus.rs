//! The corpus of a target: seeds of the mutator, and inputs that once broke a rule.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::names::stable_hash;

use crate::Target;

/// Returns the folder of this crate, with corpora and failing inputs.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn folder_of(target: &Target) -> PathBuf {
    folder().join("corpus").join(target.name)
}

/// Returns the inputs of a target: its files by name, and its generated inputs.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn of(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    for path in files(target)? {
        inputs.push(fs::read(path)?);
    }
    inputs.extend((target.seeds)());
    Ok(inputs)
}

/// Returns the files of a target's corpus, which may have none.
///
/// # Errors
/// The folder cannot be read.
pub fn files(target: &Target) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder_of(target)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Adds an input to a target's corpus.
///
/// # Errors
/// The file cannot be written.
pub fn add(target: &Target, input: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder_of(target))?;
    fs::write(folder_of(target).join(name(input)), input)
}

/// Returns the name of an input's file, by its content.
#[must_use]
pub fn name(input: &[u8]) -> String {
    format!("{:016x}", stable_hash(input.iter().copied()))
}
