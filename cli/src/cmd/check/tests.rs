//! The output of a check of valid, invalid and missing files.

use std::fs;

use clap::Parser;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    check: CheckArgs,
}

/// Runs the command on files with these texts; returns validity, standard output and standard error.
fn checked(policy: Option<&str>, tenants: Option<&str>, flags: &[&str]) -> (bool, String, String) {
    let dir = TempDir::new().unwrap();
    let mut args = vec!["check".to_owned(), dir.path().join("policy.yaml").display().to_string()];
    if let Some(text) = policy {
        fs::write(dir.path().join("policy.yaml"), text).unwrap();
    }
    if let Some(text) = tenants {
        let path = dir.path().join("tenants.yaml");
        fs::write(&path, text).unwrap();
        args.push(path.display().to_string());
    }
    args.extend(flags.iter().map(ToString::to_string));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let valid = check(&Cli::parse_from(args).check, &mut out, &mut err).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&format!("{}/", dir.path().display()), "");
    (valid, text(out), text(err))
}

const POLICY: &str = "{ buckets: { b: { limit: 0, mode: enforce }, 'a/*': { limit: unlimited } }, rollout: { require_gates: false } }";

#[test]
fn valid_policy_is_summarised() {
    let (valid, out, err) = checked(Some(POLICY), None, &[]);
    assert!(valid);
    assert_eq!(err, "");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "warning: policy.yaml:1:26: buckets.b.limit: a limit of 0 in mode enforce denies everything",
            "valid: 1 bucket and 1 pattern (1 enforce, 0 canary, 1 shadow),",
            "       1 tenant, 1 warning",
        ]
    );
    assert!(lines[3].starts_with("       policy ") && lines[3].len() == "       policy ".len() + 16, "{out}");

    let (_, out, _) = checked(Some("{ kill_switch: true, buckets: { b: { limit: 1 } } }"), None, &[]);
    assert!(out.contains("kill_switch is on"), "{out}");
}

#[test]
fn fault_has_place_and_hint() {
    let (valid, out, err) = checked(Some("buckets:\n  b: { limt: 1 }\n"), Some("tenants: { a: {} }"), &[]);
    assert!(!valid);
    assert_eq!(out, "");
    for words in ["policy.yaml:2:8: buckets.b.limt:", "2 |   b: { limt: 1 }", "did you mean `limit`?"] {
        assert!(err.contains(words), "{err}");
    }
    assert!(err.contains("tenants.yaml:1:1: tenants.default:"), "{err}");
    assert!(err.ends_with("invalid: 2 faults\n"), "{err}");
}

#[test]
fn unreadable_file_is_named() {
    let (valid, out, err) = checked(None, None, &[]);
    assert!(!valid);
    assert_eq!(out, "");
    assert!(err.starts_with("cannot read policy.yaml: "), "{err}");
}

#[test]
fn json_output_is_one_line_for_every_result() {
    let parsed = |policy| -> Value {
        let (valid, out, err) = checked(policy, None, &["--output", "json"]);
        assert_eq!((err.as_str(), out.lines().count()), ("", 1));
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["valid"], valid);
        value
    };
    let good = parsed(Some(POLICY));
    assert_eq!(good["summary"]["buckets"], 1);
    assert_eq!(good["summary"]["patterns"], 1);
    assert_eq!(good["summary"]["hash"].as_str().unwrap().len(), 16);
    assert_eq!(good["warnings"][0]["path"], "buckets.b.limit");
    let bad = parsed(Some("buckets: { b: { limit: -1 } }"));
    assert_eq!(bad["faults"][0]["path"], "buckets.b.limit");
    assert_eq!(bad["faults"][0]["place"]["column"], 24);
    let missing = parsed(None);
    assert!(missing["error"].as_str().unwrap().starts_with("cannot read"), "{missing}");
}
