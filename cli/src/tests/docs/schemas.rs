//! Generates the JSON Schemas of the YAML files, fails when one is out of date, and holds the samples to them with an
//! independent program.

use std::fs;

use plimsoll_testing::process::{has_python_package, python};
use serde_json::{Value, json};

use super::{read, root};
use crate::cmd::check::schema::SchemaOf;

const FILES: [(SchemaOf, &str, &[&str]); 3] = [
    (
        SchemaOf::Policy,
        "docs/reference/policy.schema.json",
        &[
            "cli/src/up/example/policy.yaml",
            "charts/plimsoll/files/policy.yaml",
        ],
    ),
    (
        SchemaOf::Tenants,
        "docs/reference/tenants.schema.json",
        &[
            "cli/src/up/example/tenants.yaml",
            "charts/plimsoll/files/tenants.yaml",
        ],
    ),
    (
        SchemaOf::Sidecar,
        "docs/reference/sidecar.schema.json",
        &["docs/integrations/envoy-rules.yaml"],
    ),
];
/// Reads triples of a schema, a document and whether it is valid.
const VALIDATE: &str = "
import json, sys
from jsonschema import Draft7Validator
for schema, document, valid in json.load(sys.stdin):
    Draft7Validator.check_schema(schema)
    faults = [e.message for e in Draft7Validator(schema).iter_errors(document)]
    assert valid == (not faults), f'{document}: {faults}'
";

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the first YAML in a page, which its own test holds to show every field.
fn first_fence(page: &str) -> Value {
    let page = read(page);
    let (_, from) = page.split_once("```yaml\n").unwrap();
    yaml(from.split_once("```").unwrap().0)
}

#[test]
fn schemas_are_current() {
    for (of, path, _) in FILES {
        let text = of.text().unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(root().join(path), &text).unwrap();
        }
        assert!(
            read(path) == text,
            "{path} is out of date: UPDATE_DOCS=1 cargo test -p plimsoll-cli docs::schemas writes it anew"
        );
    }
}

#[test]
fn samples_name_their_schema() {
    for (_, schema, samples) in FILES {
        for sample in samples {
            let text = read(sample);
            let first = text.lines().next().unwrap();
            let named = first.strip_prefix("# yaml-language-server: $schema=");
            let named = named.unwrap_or_else(|| panic!("{sample} names no schema: {first}"));
            let beside = root().join(sample).with_file_name(named);
            // `plimsoll up` writes the schemas beside the copies of its examples.
            let is_copied = sample.starts_with("cli/") && schema.ends_with(named);
            assert!(is_copied || beside.is_file(), "{sample}: {named}");
        }
    }
}

#[test]
fn samples_are_valid_and_faults_are_not() {
    let mut cases = Vec::new();
    let schema = |of: SchemaOf| -> Value { serde_json::from_str(&of.text().unwrap()).unwrap() };
    for (of, _, samples) in FILES {
        let valid = samples.iter().map(|sample| yaml(&read(sample)));
        cases.extend(valid.map(|document| json!([schema(of), document, true])));
    }
    let rules = first_fence("docs/reference/sidecar-rules.md");
    cases.push(json!([schema(SchemaOf::Sidecar), rules, true]));
    for (of, text, is_valid) in [
        (
            SchemaOf::Policy,
            "buckets: { a: { limit: unlimited, mode: canary } }\nguardrails: off",
            true,
        ),
        (
            SchemaOf::Policy,
            "buckets: { a: { limit: { learned: { days: 3 } } } }",
            true,
        ),
        (SchemaOf::Policy, "buckets: { a: { limt: 1 } }", false),
        (SchemaOf::Policy, "buckets: { a: { limit: \"1\" } }", false),
        (
            SchemaOf::Policy,
            "buckets: { a: { limit: 1, mode: on } }",
            false,
        ),
        (
            SchemaOf::Policy,
            "buckets: { a: { limit: 1, burst_s: null } }",
            false,
        ),
        (SchemaOf::Policy, "kill_switch: false", false),
        (
            SchemaOf::Tenants,
            "tenants: { default: { weigth: 1 } }",
            false,
        ),
        (SchemaOf::Sidecar, "http: { tenant: { heder: x } }", false),
        (
            SchemaOf::Sidecar,
            "http: { rules: [{ bucket: web, cost: many }] }",
            false,
        ),
    ] {
        cases.push(json!([schema(of), yaml(text), is_valid]));
    }
    if !has_python_package("docs::schemas", "jsonschema") {
        return;
    }
    python(VALIDATE, &json!(cases).to_string()).unwrap_or_else(|error| panic!("{error}"));
}
