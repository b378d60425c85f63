//! Imports between the crates of the workspace, and crates that must not be among their
//! dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use cargo_metadata::TargetKind;

use super::{METADATA, dependencies, folder, package, root};

/// Crates that each crate may import, also in its tests. `cli`, `bench` and `fuzz` may import all
/// of these, and no crate may import one of them.
const IMPORTS: [(&str, &[&str]); 17] = [
    ("core", &[]),
    ("testing", &[]),
    ("host", &["core"]),
    ("policy", &["core"]),
    ("tls", &["core", "host"]),
    ("net", &["core", "host", "tls"]),
    ("etcd", &["tls", "testing"]),
    ("proto", &["core", "host", "net", "tls"]),
    ("admin", &["core", "host", "net", "tls"]),
    ("quota", &["core", "host", "net", "admin"]),
    ("client", &["core", "host", "net", "proto", "tls"]),
    ("tower", &["client", "core", "host", "net", "proto"]),
    ("caller", &["tower"]),
    (
        "aggregator",
        &["core", "host", "net", "proto", "admin", "tls"],
    ),
    (
        "controller",
        &[
            "core", "host", "net", "proto", "policy", "admin", "etcd", "testing",
        ],
    ),
    (
        "sidecar",
        &[
            "tower", "client", "core", "host", "net", "admin", "policy", "testing", "tls",
        ],
    ),
    (
        "simulator",
        &[
            "core",
            "host",
            "policy",
            "client",
            "aggregator",
            "controller",
        ],
    ),
];
/// Crates that import everything.
const TOPS: [&str; 3] = ["cli", "bench", "fuzz"];
/// Dependencies that would bring a clock, a socket, entropy or the wire into pure crates.
const IMPURE: [&str; 6] = ["axum", "getrandom", "prost", "rand", "tokio", "tonic"];
/// Dependencies that a service with an embedded limiter must not build.
const NOT_IN_CLIENT: [&str; 10] = [
    "axum",
    "plimsoll-net",
    "prometheus",
    "yaml",
    "saphyr",
    "plimsoll-policy",
    "redis",
    "rustls",
    "ring",
    "x509",
];
/// Maximum number of crates that a service or a caller builds, by package and features.
const BUILT_MAX: [(&str, &str, usize); 4] = [
    ("plimsoll-caller", "", 40),
    ("plimsoll-client", "", 76),
    ("plimsoll-tower", "tls", 99),
    ("plimsoll-client", "quota", 102),
];
/// Dependencies that no crate may have. The tables of `icu_normalizer` are slow to build, and
/// return with an update of `idna_adapter`: `cargo update -p idna_adapter --precise 1.1.0` chooses
/// smaller ones with the same answers.
const NOWHERE: [&str; 2] = ["icu_normalizer", "redb"];

#[test]
fn crates_import_only_allowed_crates() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.into();
    for package in METADATA.workspace_packages() {
        let folder = folder(package);
        let imports = package.dependencies.iter().filter_map(|dependency| {
            let path = dependency.path.as_ref()?;
            Some(path.file_name()?.to_owned())
        });
        // A crate may enable more features of itself for its tests.
        let imports: BTreeSet<String> = imports.filter(|import| *import != folder).collect();
        let tops: Vec<&String> = imports
            .iter()
            .filter(|import| TOPS.contains(&import.as_str()))
            .collect();
        assert!(tops.is_empty(), "{folder} imports {tops:?}");
        if TOPS.contains(&folder.as_str()) {
            continue;
        }
        let allowed = allowed.get(folder.as_str());
        let allowed =
            allowed.unwrap_or_else(|| panic!("{folder} is missing in the list of imports"));
        let wrong: Vec<&String> = imports
            .iter()
            .filter(|import| !allowed.contains(&import.as_str()))
            .collect();
        assert!(
            wrong.is_empty(),
            "{folder} may import {allowed:?}, and imports {wrong:?}"
        );
    }
}

#[test]
fn core_and_policy_have_no_impure_dependencies() {
    for folder in ["core", "policy"] {
        for dependency in dependencies([&package(folder).id]) {
            let name = dependency.name.as_str();
            assert!(
                !IMPURE.contains(&name),
                "{folder} depends on {name}, directly or through others"
            );
        }
    }
}

#[test]
fn quota_server_and_admin_port_build_no_grpc() {
    for folder in ["quota", "admin", "net"] {
        for dependency in dependencies([&package(folder).id]) {
            let name = dependency.name.as_str();
            let is_grpc = ["plimsoll-proto", "prost", "tonic"].contains(&name);
            assert!(!is_grpc, "{folder} builds {name}");
        }
    }
}

/// Returns the names and versions of the crates that a service builds with a package.
fn built(package: &str, features: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "-p", package, "--no-default-features"])
        .args(["--features", features, "--edges", "normal"])
        .args(["--prefix", "none", "--offline", "--locked"])
        .args(["--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8(tree.stdout).unwrap();
    let crates = text
        .lines()
        .map(|line| line.split(" (").next().unwrap_or(line).to_owned());
    crates.collect()
}

#[test]
fn plain_client_builds_no_optional_dependencies() {
    let crates = built("plimsoll-client", "");
    assert!(
        crates.iter().any(|name| name.starts_with("plimsoll-proto")),
        "{crates:?}"
    );
    for name in crates {
        let unwanted = NOT_IN_CLIENT
            .iter()
            .find(|unwanted| name.contains(**unwanted));
        assert_eq!(
            unwanted, None,
            "plimsoll-client builds {name} without any feature"
        );
    }
}

#[test]
fn service_builds_few_packages() {
    for (package, features, max) in BUILT_MAX {
        let crates = built(package, features);
        assert!(
            crates.len() <= max,
            "{package} with `{features}` builds {} crates, more than {max}: {crates:?}",
            crates.len()
        );
    }
}

#[test]
fn unwanted_dependencies_are_nowhere() {
    for package in &METADATA.packages {
        let name = package.name.as_str();
        assert!(!NOWHERE.contains(&name), "{name} is a dependency again");
    }
}

#[test]
fn packages_match_folders_with_one_binary() {
    let mut binaries = Vec::new();
    for package in METADATA.workspace_packages() {
        assert_eq!(
            package.name.as_str(),
            format!("plimsoll-{}", folder(package))
        );
    }
    for package in METADATA.workspace_default_packages() {
        let targets = package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Bin));
        binaries.extend(targets.map(|target| target.name.as_str()));
    }
    assert_eq!(binaries, ["plimsoll"]);
}
