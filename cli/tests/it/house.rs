//! The rules of the house that no single crate can keep: who may import whom, where clocks and entropy may be read,
//! and which toolchain is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use cargo_metadata::semver::Version;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package, PackageId, TargetKind};

/// Who may import whom, tests included; the `cli` may import everything and nobody may import the `cli`.
const IMPORTS: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("proto", &["core"]),
    ("quota", &["core"]),
    ("client", &["core", "proto", "quota"]),
    ("aggregator", &["core", "proto"]),
    ("controller", &["core", "proto"]),
    ("sidecar", &["client", "core", "proto"]),
    ("simulator", &["aggregator", "client", "controller", "core"]),
];
/// What would bring a clock, a socket, entropy or the wire into the law.
const IMPURE: [&str; 6] = ["axum", "getrandom", "prost", "rand", "tokio", "tonic"];
/// The files that think: given the time and the draws, never asking for them. None stands for the whole crate.
const DRY: [(&str, Option<&[&str]>); 6] = [
    ("core", None),
    ("simulator", None),
    (
        "client",
        Some(&[
            "decision",
            "endpoints",
            "guards",
            "idle",
            "kept",
            "names",
            "pool",
            "rendezvous",
            "roll",
            "seats",
            "shared_key",
            "shard",
            "sketch",
            "slab",
            "slabs",
            "spread",
            "subscription",
            "table",
            "word",
        ]),
    ),
    (
        "aggregator",
        Some(&["accounts", "below", "cadence", "flows", "pushes", "quiet", "rollups", "upstream", "zone"]),
    ),
    (
        "controller",
        Some(&[
            "answer",
            "brain",
            "durable",
            "feeds",
            "history",
            "history_csv",
            "keys",
            "members",
            "protected",
            "reign",
            "rollout",
            "sources",
        ]),
    ),
    ("cli", Some(&["capacity"])),
];
/// How clocks and entropy are asked.
const AMBIENT: [&str; 5] = ["Instant::now", "SystemTime", "getrandom", "rand::rng(", "thread_rng"];
const SAFE: [&str; 5] = ["aggregator", "controller", "core", "proto", "simulator"];
const LINES_MAX: usize = 400;
/// The files that are longer all the same. One that is no longer too long must leave this list.
const LONG: [&str; 0] = [];

/// The workspace as cargo sees it on this machine.
static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let platform = format!("--filter-platform={}", host());
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).other_options([platform]).exec().unwrap()
});

/// A Rust file of a crate.
#[derive(Debug)]
struct SourceFile {
    /// From the root of the workspace.
    path: String,
    /// All lines outside tests.
    lines: Vec<String>,
    /// The files and folders that only tests have, because a `#[cfg(test)] mod x;` here says so.
    test_modules: Vec<PathBuf>,
}

#[test]
fn crates_import_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.into();
    for package in METADATA.workspace_packages() {
        let folder = folder(package);
        let imports = package.dependencies.iter().filter_map(|dependency| {
            let path = dependency.path.as_ref()?;
            Some(path.file_name()?.to_owned())
        });
        let imports: BTreeSet<String> = imports.collect();
        assert!(!imports.contains("cli"), "{folder} imports the cli");
        if folder == "cli" {
            continue;
        }
        let allowed = allowed.get(folder.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("nothing says what {folder} may import"));
        let wrong: Vec<&String> =
            imports.iter().filter(|import| !allowed.contains(&import.as_str())).collect();
        assert!(wrong.is_empty(), "{folder} may import {allowed:?} and nothing else of the house: {wrong:?}");
    }
}

#[test]
fn the_law_is_pure() {
    let core = METADATA.workspace_packages().into_iter().find(|package| folder(package) == "core").unwrap();
    for package in dependencies([&core.id]) {
        let name = package.name.as_str();
        assert!(!IMPURE.contains(&name), "core depends on {name}, if only by way of others");
    }
}

#[test]
fn packages_are_named_after_their_folders_and_there_is_one_binary() {
    let mut binaries = Vec::new();
    for package in METADATA.workspace_packages() {
        assert_eq!(package.name.as_str(), format!("plimsoll-{}", folder(package)));
        let targets = package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Bin));
        binaries.extend(targets.map(|target| target.name.as_str()));
    }
    assert_eq!(binaries, ["plimsoll"]);
}

#[test]
fn the_declared_toolchain_is_the_oldest_that_every_dependency_accepts() {
    let members = METADATA.workspace_packages();
    let declared: BTreeSet<&Version> =
        members.iter().filter_map(|package| package.rust_version.as_ref()).collect();
    let [declared] = declared.iter().copied().collect::<Vec<_>>()[..] else {
        panic!("one rust-version for all: {declared:?}")
    };
    let all = dependencies(members.iter().map(|package| &package.id));
    let outside = all.iter().filter(|package| package.source.is_some());
    let newest = outside.max_by_key(|package| package.rust_version.clone()).unwrap();
    assert_eq!(Some(declared), newest.rust_version.as_ref(), "{} {}", newest.name, newest.version);

    let version = format!("{}.{}", declared.major, declared.minor);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&version), "README.md names no Rust {version}");
}

#[test]
fn what_thinks_reads_no_clock_and_draws_nothing() {
    for (folder, nouns) in DRY {
        let files = source_files(folder);
        let src = format!("{folder}/src/");
        let noun = |file: &SourceFile| -> Option<String> {
            let path = file.path.strip_prefix(&src)?;
            Some(path.split(['/', '.']).next()?.to_owned())
        };
        for wanted in nouns.unwrap_or_default() {
            let found = files.iter().any(|file| noun(file).as_deref() == Some(wanted));
            assert!(found, "{src}{wanted}.rs is gone: say here where its thinking went");
        }
        let dry = |file: &&SourceFile| {
            nouns.is_none_or(|nouns| noun(file).is_some_and(|noun| nouns.contains(&noun.as_str())))
        };
        for file in files.iter().filter(dry) {
            for line in &file.lines {
                let code = line.split("//").next().unwrap_or_default();
                let asked = AMBIENT.iter().find(|ambient| code.contains(**ambient));
                assert_eq!(asked, None, "{}: {line}", file.path);
            }
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_where_it_says_so() {
    for folder in SAFE {
        let lib = fs::read_to_string(root().join(folder).join("src/lib.rs")).unwrap();
        assert!(lib.lines().any(|line| line == "#![forbid(unsafe_code)]"), "{folder}/src/lib.rs");
    }
}

#[test]
fn every_file_says_why_it_exists() {
    for package in METADATA.workspace_packages() {
        for path in rust_files(&package.manifest_path.as_std_path().with_file_name("")) {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("//! "), "{} does not say why it exists", path.display());
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let packages = METADATA.workspace_packages().into_iter();
    let files = packages.flat_map(|package| source_files(&folder(package)));
    let long = files.filter(|file| file.lines.len() > LINES_MAX).map(|file| file.path);
    let long: BTreeSet<String> = long.collect();
    let listed = LONG.map(ToOwned::to_owned).into();
    assert_eq!(long, listed, "files of more than {LINES_MAX} lines outside tests, and those listed as such");
}

#[test]
fn tests_are_told_apart_from_code() {
    let text = "\
//! Why.
mod kept;
#[cfg(test)]
mod model;
#[cfg(test)]
use left::out;

fn kept() {
    #[cfg(test)]
    if left_out() {
        return;
    }
}

#[cfg(test)]
mod tests {
    fn left_out() {
    }
}
";
    let path = root().join("core/src/noun.rs");
    let file = SourceFile::parse(&path, text);
    assert_eq!(file.path, "core/src/noun.rs");
    assert_eq!(file.lines, ["//! Why.", "mod kept;", "", "fn kept() {", "}", ""]);
    let folder = root().join("core/src/noun");
    assert_eq!(file.test_modules, [folder.join("model"), folder.join("model.rs")]);
    let lib = SourceFile::parse(&root().join("core/src/lib.rs"), "#[cfg(test)]\npub(crate) mod model;\n");
    assert_eq!(lib.test_modules[0], root().join("core/src/model"));
}

// === impl SourceFile ===

impl SourceFile {
    fn parse(path: &Path, text: &str) -> Self {
        let mut file = Self {
            path: path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(),
            lines: Vec::new(),
            test_modules: Vec::new(),
        };
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                file.lines.push(line.to_owned());
                continue;
            }
            // What rustfmt has laid out ends at the bracket below its first letter, or at a semicolon.
            let indent = &line[..line.len() - line.trim_start().len()];
            let item = lines.next().unwrap_or_default();
            if let Some(name) = item.trim().strip_suffix(';').and_then(|item| item.split("mod ").nth(1)) {
                let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
                    Some("lib" | "main" | "mod") => path.with_file_name(""),
                    _ => path.with_extension(""),
                };
                file.test_modules.extend([folder.join(name), folder.join(name).with_extension("rs")]);
            }
            let ends = |line: &str| line.ends_with(';') || line == format!("{indent}}}");
            if !ends(item) {
                lines.by_ref().find(|line| *line == format!("{indent}}}"));
            }
        }
        file
    }
}

/// The files below a crate's `src`, without those that only tests have.
fn source_files(folder: &str) -> Vec<SourceFile> {
    let paths = rust_files(&root().join(folder).join("src"));
    assert!(!paths.is_empty(), "{folder} has no files");
    let read = |path: PathBuf| {
        let file = SourceFile::parse(&path, &fs::read_to_string(&path).unwrap());
        (path, file)
    };
    let files: Vec<(PathBuf, SourceFile)> = paths.into_iter().map(read).collect();
    let test_modules: BTreeSet<PathBuf> =
        files.iter().flat_map(|(_, file)| file.test_modules.clone()).collect();
    let is_test = |path: &Path| path.ancestors().any(|ancestor| test_modules.contains(ancestor));
    files.into_iter().filter(|(path, _)| !is_test(path)).map(|(_, file)| file).collect()
}

/// Every Rust file below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What these packages are built from, themselves included; what only tests need does not count.
fn dependencies<'a>(roots: impl IntoIterator<Item = &'a PackageId>) -> Vec<&'static Package> {
    let nodes: BTreeMap<&PackageId, &Node> =
        METADATA.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<&PackageId> = roots.into_iter().collect();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let built = nodes[id].deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        });
        open.extend(built.map(|dependency| &dependency.pkg));
    }
    found.into_iter().map(|id| &METADATA[id]).collect()
}

/// The folder of a package, which is its name in the house.
fn folder(package: &Package) -> String {
    package.manifest_path.parent().and_then(|folder| folder.file_name()).unwrap().to_owned()
}

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn host() -> String {
    let version =
        Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output();
    let text = String::from_utf8(version.unwrap().stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}
