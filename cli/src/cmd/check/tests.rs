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

/// Runs the command on files with these texts; returns validity, standard output and standard
/// error.
fn checked(policy: Option<&str>, tenants: Option<&str>, flags: &[&str]) -> (bool, String, String) {
    let dir = TempDir::new().unwrap();
    let mut args = vec![
        "check".to_owned(),
        dir.path().join("policy.yaml").display().to_string(),
    ];
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
    let text = |bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(&format!("{}/", dir.path().display()), "")
    };
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
            "       0 quotas, 1 tenant",
        ]
    );
    assert!(
        lines[3].starts_with("       policy ") && lines[3].len() == "       policy ".len() + 16,
        "{out}"
    );

    let (_, out, _) = checked(
        Some("{ kill_switch: true, buckets: { b: { limit: 1 } } }"),
        None,
        &[],
    );
    assert!(out.contains("kill_switch is on"), "{out}");
}

#[test]
fn fault_has_place_and_hint() {
    let (valid, out, err) = checked(
        Some("buckets:\n  b: { limt: 1 }\n"),
        Some("tenants: { a: {} }"),
        &[],
    );
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
    let (valid, out, err) = checked(None, None, &[]);
    assert!(!valid);
    assert_eq!(out, "");
    assert!(err.starts_with("cannot read policy.yaml: "), "{err}");
}

#[test]
fn json_has_one_line_per_result() {
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
    assert!(
        missing["error"]
            .as_str()
            .unwrap()
            .starts_with("cannot read"),
        "{missing}"
    );
}

/// Runs the command on rules, and a policy if there is one.
fn checked_rules(
    rules: Option<&str>,
    policy: Option<&str>,
    flags: &[&str],
) -> (bool, String, String) {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut args = vec![
        "check".to_owned(),
        "--sidecar-rules".to_owned(),
        path("rules.yaml"),
    ];
    if let Some(text) = rules {
        fs::write(path("rules.yaml"), text).unwrap();
    }
    if let Some(text) = policy {
        fs::write(path("policy.yaml"), text).unwrap();
        args.push(path("policy.yaml"));
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

const RULES: &str = "rls: { domains: { shop: { descriptors: [{ key: a, bucket: b, descriptors: [{ key: c, bucket: a/1 }] }] } } }\n\
                     http: { tenant: t, rules: [{ path: /x, bucket: d }] }\n";

#[test]
fn rules_are_checked_without_a_policy() {
    let (valid, out, err) = checked_rules(Some(RULES), None, &[]);
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
    let (valid, out, _) = checked_rules(Some(RULES), Some(POLICY), &[]);
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
    let (valid, out, err) = checked_rules(Some(bad), Some("buckets: { b: { limit: -1 } }"), &[]);
    assert!(!valid);
    assert_eq!(out, "");
    assert!(
        err.contains("policy.yaml:1:24") && err.contains("rules.yaml:1:41"),
        "{err}"
    );
    assert!(err.ends_with("invalid: 2 faults\n"), "{err}");
    let (valid, out, _) = checked_rules(Some(bad), Some(POLICY), &["--output", "json"]);
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
    let (valid, _, err) = checked_rules(None, Some(POLICY), &[]);
    assert!(!valid);
    assert!(err.starts_with("cannot read rules.yaml: "), "{err}");
    let (_, out, _) = checked_rules(Some(RULES), None, &["--output", "json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    let rules = &found["sidecar_rules"];
    assert_eq!(
        (&rules["domains"], &rules["descriptors"]),
        (&Value::from(1), &Value::from(2))
    );
    assert_eq!(
        (&rules["http"], &rules["buckets"]),
        (&Value::from(1), &Value::from(3))
    );
}
