//! The declared Rust version is the oldest that every dependency accepts.

use std::collections::BTreeSet;
use std::fs;

use cargo_metadata::semver::Version;

use super::{METADATA, dependencies, root};

#[test]
fn declared_rust_version_suits_every_dependency() {
    let members = METADATA.workspace_packages();
    let declared: BTreeSet<&Version> = members
        .iter()
        .filter_map(|package| package.rust_version.as_ref())
        .collect();
    let [declared] = declared.iter().copied().collect::<Vec<_>>()[..] else {
        panic!("the crates declare different Rust versions: {declared:?}")
    };
    let all = dependencies(members.iter().map(|package| &package.id));
    let external = all.iter().filter(|package| package.source.is_some());
    let newest = external
        .max_by_key(|package| package.rust_version.clone())
        .unwrap();
    assert_eq!(
        Some(declared),
        newest.rust_version.as_ref(),
        "{} {}",
        newest.name,
        newest.version
    );

    let version = format!("{}.{}", declared.major, declared.minor);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains(&version),
        "README.md does not mention Rust {version}"
    );
}
