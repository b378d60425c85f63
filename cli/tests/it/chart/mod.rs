//! The chart and its policy files agree with the binary, and the binary explains itself.

mod members;
mod quota;
mod release;
mod sidecar;
mod trust;
mod watching;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_testing::process::run;
use tempfile::TempDir;

use crate::house::root;

const USAGE: i32 = 2;

pub(crate) fn chart() -> PathBuf {
    root().join("charts/plimsoll")
}

/// Returns the output of helm with these arguments. `None` if helm is not installed, and then
/// `test` is recorded as skipped.
pub(crate) fn helm<S: AsRef<OsStr>>(test: &str, args: &[S]) -> Option<Output> {
    let folders = TempDir::new().unwrap();
    let mut helm = Command::new("helm");
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(name, folders.path());
    }
    match helm.args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            plimsoll_testing::skipped(&format!("{test}: helm is not installed: {error}"));
            None
        }
    }
}

/// Returns the exit code, standard output and standard error.
pub(crate) fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn policy_of_the_chart_is_valid() {
    let files = chart().join("files");
    let (policy, tenants) = (files.join("policy.yaml"), files.join("tenants.yaml"));
    let (code, out, err) = parts(run(&[
        "check".as_ref(),
        policy.as_os_str(),
        tenants.as_os_str(),
    ]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("valid: "), "{out}");
    // On the day of the installation nothing is refused.
    assert!(out.contains("(0 enforce, 0 canary,"), "{out}");
}

#[test]
fn invalid_policy_is_reported_with_a_snippet() {
    // The file, the place of its fault, and the texts of the error: path, snippet, hint.
    for (policy, place, texts) in [
        (
            "buckets:\n  checkout: { limt: 1000 }\n",
            "policy.yaml:2:15",
            [
                "buckets.checkout.limt",
                "2 |   checkout: { limt: 1000 }",
                "did you mean `limit`?",
            ],
        ),
        (
            "buckets:\n  checkout:\n    limit: 1000\n    mode: enforced\n",
            "policy.yaml:4:11",
            [
                "buckets.checkout.mode",
                "4 |     mode: enforced",
                "`enforce`",
            ],
        ),
        (
            "kill_swich: true\nbuckets: {}\n",
            "policy.yaml:1:1",
            [
                "kill_swich",
                "1 | kill_swich: true",
                "did you mean `kill_switch`?",
            ],
        ),
        (
            "buckets:\n  checkout: { limit: -1 }\n",
            "policy.yaml:2:22",
            [
                "buckets.checkout.limit",
                "2 |   checkout: { limit: -1 }",
                "0 denies everything",
            ],
        ),
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("policy.yaml");
        fs::write(&path, policy).unwrap();
        let (code, out, err) = parts(run(&["check".as_ref(), path.as_os_str()]));
        assert_eq!((code, out.as_str()), (Some(USAGE), ""), "{policy}{err}");
        assert!(
            err.contains(&format!("{place}:")),
            "{place} is missing:\n{err}"
        );
        for text in texts {
            assert!(err.contains(text), "{text} is missing:\n{err}");
        }
    }
}

#[test]
fn every_command_has_help_and_environment_variables() {
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    let mut flags_seen = 0;
    while let Some(command) = open.pop() {
        let help = help(&command);
        for flag in flags(&help)
            .into_iter()
            .filter(|flag| !["--help", "--version"].contains(&flag.name))
        {
            assert!(
                flag.text.contains("[env: PLIMSOLL_"),
                "{command:?} {}:\n{help}",
                flag.name
            );
            flags_seen += 1;
        }
        open.extend(commands(&help).map(|name| [command.as_slice(), &[name.to_owned()]].concat()));
    }
    assert!(flags_seen > 20, "only {flags_seen} flags were found");
}

#[test]
fn unknown_flag_fails_with_a_hint() {
    for (args, hint) in [
        (["controller", "--polcy", "x"], "--policy"),
        (["up", "--durations", "1s"], "--duration"),
        (["aggregator", "--zones", "a"], "--zone"),
    ] {
        let (code, out, err) = parts(run(&args));
        assert_eq!((code, out.as_str()), (Some(USAGE), ""), "{args:?}");
        assert!(
            err.contains("tip: ") && err.contains(&format!("'{hint}'")),
            "{args:?}: {err}"
        );
    }
    let (code, _, err) = parts(run(&["controler"]));
    assert_eq!(code, Some(USAGE));
    assert!(err.contains("'controller'"), "{err}");
}

#[test]
fn chart_starts_tiers_with_existing_flags() {
    for (template, command) in [("controller", "controller"), ("aggregators", "aggregator")] {
        let help = help(&[command.to_owned()]);
        let known: BTreeSet<&str> = flags(&help).into_iter().map(|flag| flag.name).collect();
        let mut template =
            template_text(&format!("{template}.yaml")) + &template_text("_trust.tpl");
        if command == "controller" {
            template += &template_text("_members.tpl");
        }
        assert!(
            template.contains(&format!("- {command}\n")),
            "{command} is not started"
        );
        let given = template
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- --"));
        let given: BTreeSet<String> = given
            .map(|flag| format!("--{}", flag.split('=').next().unwrap()))
            .collect();
        assert!(
            given.contains("--admin") && given.contains("--certs"),
            "{given:?}"
        );
        for flag in given {
            assert!(
                known.contains(flag.as_str()),
                "plimsoll {command} has no {flag}"
            );
        }
    }
}

#[test]
fn templates_use_only_defined_values_and_names() {
    let values = value_paths(&fs::read_to_string(chart().join("values.yaml")).unwrap());
    let templates: Vec<String> = fs::read_dir(chart().join("templates"))
        .unwrap()
        .map(|entry| template_text(entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    let templates = templates.join("\n");
    let used = texts_after(&templates, ".Values.", |letter| {
        letter.is_ascii_alphanumeric() || letter == '.'
    });
    assert!(used.len() > 10, "{used:?}");
    let unknown: Vec<&String> = used.difference(&values).collect();
    assert!(unknown.is_empty(), "values.yaml does not have {unknown:?}");

    let name = |letter: char| letter != '"';
    let defined = texts_after(&templates, "{{- define \"", name);
    let included = texts_after(&templates, "include \"", name);
    assert!(!included.is_empty());
    assert_eq!(defined, included, "defined names, and included names");
}

#[test]
fn value_paths_follow_the_indentation() {
    let paths = value_paths("a:\n  # b:\n  c: 1\n  d:\n    e: {}\nf: []\n");
    assert_eq!(
        paths.iter().map(String::as_str).collect::<Vec<_>>(),
        ["a", "a.c", "a.d", "a.d.e", "f"]
    );
}

pub(crate) struct Flag<'a> {
    pub(crate) name: &'a str,
    text: String,
}

pub(crate) fn help(command: &[String]) -> String {
    let args: Vec<&str> = command
        .iter()
        .map(String::as_str)
        .chain(["--help"])
        .collect();
    let (code, out, err) = parts(run(&args));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    out
}

pub(crate) fn flags(help: &str) -> Vec<Flag<'_>> {
    let mut flags: Vec<Flag<'_>> = Vec::new();
    for line in help.lines() {
        let words = line.split([' ', ',', '=']).filter(|word| !word.is_empty());
        let first_words: Vec<&str> = words.take(2).collect();
        let name = first_words.iter().find(|word| word.starts_with("--"));
        let is_flag = line.starts_with("  ")
            && first_words
                .first()
                .is_some_and(|word| word.starts_with('-'));
        if let Some(name) = name.filter(|_| is_flag) {
            flags.push(Flag {
                name,
                text: String::new(),
            });
        }
        if let Some(flag) = flags.last_mut() {
            flag.text.push_str(line);
        }
    }
    flags
}

/// Asserts that a command has all flags of a rendered object.
pub(crate) fn assert_flags_exist(command: &str, object: &str) {
    let help = help(&[command.to_owned()]);
    let known: Vec<&str> = flags(&help).into_iter().map(|flag| flag.name).collect();
    let given = object.lines();
    let given = given.filter_map(|line| line.trim().strip_prefix("- ")?.split('=').next());
    let given: Vec<&str> = given.filter(|flag| flag.starts_with("--")).collect();
    assert!(given.len() > 6, "{given:?}");
    let unknown: Vec<&&str> = given.iter().filter(|flag| !known.contains(flag)).collect();
    assert!(unknown.is_empty(), "plimsoll {command} has no {unknown:?}");
}

fn commands(help: &str) -> impl Iterator<Item = &str> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // Deeper lines continue the line above.
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

fn template_text(name: &str) -> String {
    fs::read_to_string(Path::new(&chart()).join("templates").join(name)).unwrap()
}

/// Returns the paths of all keys of a YAML file that nests only by indentation.
fn value_paths(yaml: &str) -> BTreeSet<String> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut paths = BTreeSet::new();
    for line in yaml.lines() {
        let key = line.trim_start();
        let indent = line.len() - key.len();
        let Some((key, _)) = key
            .split_once(':')
            .filter(|(key, _)| !key.starts_with(['#', '-']))
        else {
            continue;
        };
        open.retain(|(outer, _)| *outer < indent);
        open.push((indent, key));
        paths.insert(
            open.iter()
                .map(|(_, key)| *key)
                .collect::<Vec<_>>()
                .join("."),
        );
    }
    paths
}

/// Returns the texts after every `mark`, as long as their letters are `wanted`.
fn texts_after(text: &str, mark: &str, wanted: impl Fn(char) -> bool) -> BTreeSet<String> {
    let rests = text.split(mark).skip(1);
    rests
        .map(|rest| rest.chars().take_while(|letter| wanted(*letter)).collect())
        .collect()
}
