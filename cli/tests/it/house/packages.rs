//! The packages that a service builds from: `cargo package` packs them, with all files that a build
//! needs and the metadata of a registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cargo_metadata::{Package, Target};

use super::source::rust_files;
use super::{METADATA, dependencies, folder, package, root};

/// Crate that services depend on. It is packed with the crates of the workspace that it imports.
const EMBEDDED: &str = "tower";
/// Maximum number of keywords or categories in a registry.
const WORDS_MAX: usize = 5;
/// Files of every package: cargo writes the first two, people read the others.
const ALWAYS: [&str; 4] = ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md"];
/// Files of a package that are not Rust sources, by folder: the code of the wire is made from the
/// first, and the others are sent to Redis.
const BESIDE: [(&str, &str); 3] = [
    ("proto", "proto/plimsoll/exchange/v1/exchange.proto"),
    ("client", "src/limiter/quota/store/give.lua"),
    ("client", "src/limiter/quota/store/take.lua"),
];

/// Returns the packages of the workspace that a service builds, with all features of the layer.
fn packed() -> Vec<&'static Package> {
    let built = dependencies([&package(EMBEDDED).id]);
    let packed: Vec<&Package> = built
        .into_iter()
        .filter(|package| package.source.is_none())
        .collect();
    assert!(packed.len() >= 4, "{packed:?}");
    packed
}

fn cargo(args: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn lines(output: &Output) -> BTreeSet<String> {
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn service_packages_are_packed_offline() {
    let target = tempfile::tempdir().unwrap();
    let mut args = vec![
        "package",
        "--offline",
        "--allow-dirty",
        "--no-verify",
        "--quiet",
        "--target-dir",
    ];
    args.push(target.path().to_str().unwrap());
    for package in packed() {
        args.extend(["--package", package.name.as_str()]);
    }
    cargo(&args);
    for package in packed() {
        let name = format!("package/{}-{}.crate", package.name, package.version);
        assert!(target.path().join(&name).is_file(), "{name}");
    }
}

#[test]
fn package_contains_everything_its_build_reads() {
    for package in packed() {
        let name = package.name.as_str();
        let listed = lines(&cargo(&[
            "package",
            "--list",
            "--offline",
            "--allow-dirty",
            "--package",
            name,
        ]));
        let base = package.manifest_path.as_std_path().parent().unwrap();
        let relative = |path: &Path| {
            path.strip_prefix(base)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        let mut needed: BTreeSet<String> = rust_files(&base.join("src"))
            .iter()
            .map(|path| relative(path))
            .collect();
        assert!(needed.contains("src/lib.rs"), "{needed:?}");
        needed.extend(ALWAYS.map(ToOwned::to_owned));
        needed.extend(
            BESIDE
                .iter()
                .filter(|(of, _)| *of == folder(package))
                .map(|(_, path)| (*path).to_owned()),
        );
        let examples = package.targets.iter().filter(|target| target.is_example());
        needed.extend(examples.map(|target| relative(target.src_path.as_std_path())));
        let absent: Vec<&String> = needed.difference(&listed).collect();
        assert!(absent.is_empty(), "the package of {name} lacks {absent:?}");
        let tests: Vec<&String> = listed
            .iter()
            .filter(|path| path.starts_with("tests/"))
            .collect();
        assert!(
            tests.is_empty(),
            "the package of {name} has tests that need the workspace: {tests:?}"
        );
        for source in rust_files(&base.join("src")) {
            let text = std::fs::read_to_string(&source).unwrap();
            for file in included(&text).map(|file| source.with_file_name(file)) {
                let file = relative(&file.canonicalize().unwrap());
                assert!(
                    needed.contains(&file),
                    "{} reads {file}: list it here",
                    source.display()
                );
            }
        }
    }
}

/// Returns the files that a source includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let calls = ["include_str!", "include_bytes!"]
        .into_iter()
        .flat_map(|call| text.split(call).skip(1));
    calls.map(|call| call.split('"').nth(1).unwrap())
}

#[test]
fn service_packages_have_registry_metadata() {
    for package in packed() {
        let name = package.name.as_str();
        assert!(
            package
                .description
                .as_ref()
                .is_some_and(|text| !text.is_empty()),
            "{name}: description"
        );
        assert_eq!(
            package.license.as_deref(),
            Some("Apache-2.0"),
            "{name}: license"
        );
        assert_eq!(
            package.readme.as_ref().map(ToString::to_string).as_deref(),
            Some("README.md"),
            "{name}"
        );
        for (words, kind) in [
            (&package.keywords, "keywords"),
            (&package.categories, "categories"),
        ] {
            assert!(
                (1..=WORDS_MAX).contains(&words.len()),
                "{name} has {} {kind}",
                words.len()
            );
        }
    }
}

#[test]
fn packed_crates_name_each_others_versions() {
    for package in packed() {
        for dependency in &package.dependencies {
            let member = METADATA
                .workspace_packages()
                .into_iter()
                .find(|member| *member.name == dependency.name);
            // Cargo leaves out a dependency of a package on itself, which is only for its tests, if
            // it has no version.
            let Some(member) = member.filter(|member| member.name != package.name) else {
                continue;
            };
            assert!(
                dependency.req.matches(&member.version) && dependency.req.to_string() != "*",
                "{} asks for {} {}, which has version {}",
                package.name,
                member.name,
                dependency.req,
                member.version
            );
        }
    }
}

/// A library without examples in its documentation skips rustdoc's tests: reading all of them takes
/// minutes.
#[test]
fn skipped_documentation_has_no_examples() {
    for package in METADATA.workspace_packages() {
        let skips = |target: &&Target| target.is_lib() && !target.doctest;
        let Some(library) = package.targets.iter().find(skips) else {
            continue;
        };
        for path in rust_files(library.src_path.parent().unwrap().as_std_path()) {
            let text = fs::read_to_string(&path).unwrap();
            let fences = text.lines().filter_map(|line| {
                let line = line.trim_start();
                let doc = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
                doc.trim_start().strip_prefix("```")
            });
            // Every second one ends a block.
            for language in fences.step_by(2) {
                assert_eq!(language, "text", "{}: set doctest = true", path.display());
            }
        }
    }
}
