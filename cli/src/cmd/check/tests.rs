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

/// Runs the command on these files, which are missing without a text; returns validity, standard
/// output and standard error.
fn checked(files: &[(&str, Option<&str>)], flags: &[&str]) -> (bool, String, String) {
    let dir = TempDir::new().unwrap();
    let mut args = vec!["check".to_owned()];
    for (name, text) in files {
        let path = dir.path().join(name);
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        if *name == "rules.yaml" {
            args.push("--sidecar-rules".to_owned());
        }
        args.push(path.display().to_string());
    }
    args.extend(flags.iter().map(ToString::to_string));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let valid = check(&Cli::parse_from(args).check, &mut out, &mut err).unwrap();
    let text = |bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(&format!("{}/", dir.path().display()), "")
    };
    (valid, text(out), text(err))
}

fn policy(text: &str) -> (&str, Option<&str>) {
    ("policy.yaml", Some(text))
}

fn rules(text: &str) -> (&str, Option<&str>) {
    ("rules.yaml", Some(text))
}

const POLICY: &str = "{ buckets: { b: { limit: 0, mode: enforce }, 'a/*': { limit: unlimited } }, rollout: { require_gates: false } }";

#[test]
fn valid_policy_is_summarised() {
    let (valid, out, err) = checked(&[policy(POLICY)], &[]);
    assert!(valid);
    assert_eq!(err, "");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "warning: policy.yaml:1:26: buckets.b.limit: a limit of 0 in mode enforce denies everything",
            "valid: 1 bucket and 1 pattern (1 enforce, 0 canary, 1 shadow),",
            "       0 quotas, 1 tenant",
        ]
    );
    assert!(
        lines[3].starts_with("       policy ") && lines[3].len() == "       policy ".len() + 16,
        "{out}"
    );

    let killed = "{ kill_switch: true, buckets: { b: { limit: 1 } } }";
    let (_, out, _) = checked(&[policy(killed)], &[]);
    assert!(out.contains("kill_switch is on"), "{out}");
}

#[test]
fn fault_has_place_and_hint() {
    let files = [
        policy("buckets:\n  b: { limt: 1 }\n"),
        ("tenants.yaml", Some("tenants: { a: {} }")),
    ];
    let (valid, out, err) = checked(&files, &[]);
    assert!(!valid);
    assert_eq!(out, "");
    for words in [
        "policy.yaml:2:8: buckets.b.limt:",
        "2 |   b: { limt: 1 }",
        "did you mean `limit`?",
    ] {
        assert!(err.contains(words), "{err}");
    }
    assert!(err.contains("tenants.yaml:1:1: tenants.default:"), "{err}");
    assert!(err.ends_with("invalid: 2 faults\n"), "{err}");
}

#[test]
fn unreadable_file_is_named() {
    let (valid, out, err) = checked(&[("policy.yaml", None)], &[]);
    assert!(!valid);
    assert_eq!(out, "");
    assert!(err.starts_with("cannot read policy.yaml: "), "{err}");
}

#[test]
fn json_has_one_line_per_result() {
    let parsed = |policy| -> Value {
        let (valid, out, err) = checked(&[("policy.yaml", policy)], &["--output", "json"]);
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
    assert!(
        missing["error"]
            .as_str()
            .unwrap()
            .starts_with("cannot read"),
        "{missing}"
    );
}

const RULES: &str = "rls: { domains: { shop: { descriptors: [{ key: a, bucket: b, descriptors: [{ key: c, bucket: a/1 }] }] } } }\n\
                     http: { tenant: t, rules: [{ path: /x, bucket: d }] }\n";

#[test]
fn rules_are_checked_without_a_policy() {
    let (valid, out, err) = checked(&[rules(RULES)], &[]);
    assert!(valid);
    assert_eq!(err, "");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "valid: 2 rules for descriptors of 1 domain,",
            "       1 rule for HTTP, 3 buckets"
        ]
    );
    assert!(
        lines[2].starts_with("       rules ") && lines[3] == "       0 warnings",
        "{out}"
    );
}

#[test]
fn rules_for_unknown_buckets_are_warned_of() {
    let (valid, out, _) = checked(&[rules(RULES), policy(POLICY)], &[]);
    assert!(valid);
    let warnings: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("rules.yaml"))
        .collect();
    assert_eq!(
        warnings,
        [
            "warning: rules.yaml:2:48: http.rules.0.bucket: no entry of the policy names the bucket `d`: all its requests are \
          admitted"
        ]
    );
    assert!(out.ends_with("       2 warnings\n"), "{out}");
}

#[test]
fn rule_and_policy_faults_appear_together() {
    let bad = "rls: { domains: { shop: { descriptors: [{ key: a }] } } }";
    let (valid, out, err) = checked(&[rules(bad), policy("buckets: { b: { limit: -1 } }")], &[]);
    assert!(!valid);
    assert_eq!(out, "");
    assert!(
        err.contains("policy.yaml:1:24") && err.contains("rules.yaml:1:41"),
        "{err}"
    );
    assert!(err.ends_with("invalid: 2 faults\n"), "{err}");
    let (valid, out, _) = checked(&[rules(bad), policy(POLICY)], &["--output", "json"]);
    assert!(!valid);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["faults"][0]["path"], "rls.domains.shop.descriptors.0");
    assert_eq!(
        (&found["valid"], &found["summary"]["buckets"]),
        (&Value::from(false), &Value::from(1))
    );
}

#[test]
fn unreadable_rules_keep_the_json_summary() {
    let (valid, _, err) = checked(&[("rules.yaml", None), policy(POLICY)], &[]);
    assert!(!valid);
    assert!(err.starts_with("cannot read rules.yaml: "), "{err}");
    let (_, out, _) = checked(&[rules(RULES)], &["--output", "json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    let shown = &found["sidecar_rules"];
    assert_eq!(
        (&shown["domains"], &shown["descriptors"]),
        (&Value::from(1), &Value::from(2))
    );
    assert_eq!(
        (&shown["http"], &shown["buckets"]),
        (&Value::from(1), &Value::from(3))
    );
}
