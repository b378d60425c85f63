//! Layout of folders and files: their size, module style and headers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{rust_files, source_files};
use super::{METADATA, entries, folder, path_of};

/// Entries of a folder below `src` or `tests`.
const ENTRIES_MAX: usize = 12;
/// Without tests.
const LINES_MAX: usize = 600;
/// Longer files: generated code. A file that is short enough must leave this list.
const LONG: [&str; 1] = ["proto/src/wire.rs"];
const SAFE: [&str; 11] = [
    "admin",
    "aggregator",
    "controller",
    "core",
    "etcd",
    "host",
    "net",
    "policy",
    "proto",
    "quota",
    "simulator",
];

#[test]
fn no_folder_has_too_many_entries() {
    for folder in rust_folders() {
        let count = entries(&folder).len();
        assert!(
            count <= ENTRIES_MAX,
            "{} has {count} entries, maximum {ENTRIES_MAX}",
            folder.display()
        );
    }
}

#[test]
fn modules_with_children_are_mod_rs_files() {
    let mut modules = 0;
    for folder in rust_folders() {
        let beside = folder.with_extension("rs");
        assert!(
            !beside.exists(),
            "{} belongs into {}/mod.rs",
            beside.display(),
            folder.display()
        );
        modules += usize::from(folder.join("mod.rs").exists());
    }
    assert!(modules > 20, "only {modules} modules were found");
}

#[test]
fn crates_forbid_unsafe_code() {
    for folder in SAFE {
        let lib = fs::read_to_string(path_of(folder).join("src/lib.rs")).unwrap();
        assert!(
            lib.lines().any(|line| line == "#![forbid(unsafe_code)]"),
            "{folder}/src/lib.rs"
        );
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    for package in METADATA.workspace_packages() {
        for path in rust_files(&package.manifest_path.as_std_path().with_file_name("")) {
            let text = fs::read_to_string(&path).unwrap();
            assert!(
                text.starts_with("//! "),
                "{} does not open with its purpose",
                path.display()
            );
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let packages = METADATA.workspace_packages().into_iter();
    let files = packages.flat_map(|package| source_files(&folder(package)));
    let long = files
        .filter(|file| file.lines.len() > LINES_MAX)
        .map(|file| file.path);
    let long: BTreeSet<String> = long.collect();
    let listed = LONG.map(ToOwned::to_owned).into();
    assert_eq!(
        long, listed,
        "files of more than {LINES_MAX} lines without tests, and the listed ones"
    );
}

/// Returns the folders `src` and `tests` of all packages, and all folders below them.
fn rust_folders() -> Vec<PathBuf> {
    let packages = METADATA.workspace_packages().into_iter();
    packages
        .flat_map(|package| {
            ["src", "tests"].map(|part| package.manifest_path.as_std_path().with_file_name(part))
        })
        .filter(|part| part.is_dir())
        .flat_map(|part| folders(&part))
        .collect()
}

/// Returns a folder and all folders below it.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let below = entries(folder).into_iter().filter(|path| path.is_dir());
    std::iter::once(folder.to_owned())
        .chain(below.flat_map(|folder| folders(&folder)))
        .collect()
}
