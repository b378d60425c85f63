//! Rules that no single crate can check: imports between crates, purity, layout of folders and
//! files, the toolchain, and the cases of alerts.

mod alerts;
mod circles;
mod imports;
mod layout;
mod packages;
mod purity;
mod source;
mod toolchain;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package, PackageId};

/// As cargo resolves it for this machine.
static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let platform = format!("--filter-platform={}", host());
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options([platform])
        .exec()
        .unwrap()
});

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Path from the root of the workspace.
fn folder(package: &Package) -> String {
    package
        .manifest_path
        .parent()
        .and_then(|folder| folder.file_name())
        .unwrap()
        .to_owned()
}

fn package(name: &str) -> &'static Package {
    METADATA
        .workspace_packages()
        .into_iter()
        .find(|package| folder(package) == name)
        .unwrap()
}

/// Returns the path of the package in a folder of this name.
fn path_of(name: &str) -> PathBuf {
    package(name).manifest_path.as_std_path().with_file_name("")
}

/// Returns the packages that these packages are built from, including themselves, without
/// dev-dependencies.
fn dependencies<'a>(roots: impl IntoIterator<Item = &'a PackageId>) -> Vec<&'static Package> {
    let nodes: BTreeMap<&PackageId, &Node> = METADATA
        .resolve
        .iter()
        .flat_map(|resolve| &resolve.nodes)
        .map(|node| (&node.id, node))
        .collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<&PackageId> = roots.into_iter().collect();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let built = nodes[id].deps.iter().filter(|dependency| {
            dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind != DependencyKind::Development)
        });
        open.extend(built.map(|dependency| &dependency.pkg));
    }
    found.into_iter().map(|id| &METADATA[id]).collect()
}

/// Returns the entries of a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn host() -> String {
    let version = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output();
    let text = String::from_utf8(version.unwrap().stdout).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap()
        .to_owned()
}
