//! The OpenAPI document: the port answers its examples as described, and an independent program
//! finds it valid.

use plimsoll_testing::process::{has_python_package, python};
use serde_json::{Map, json};

use super::*;

/// Reads the document and examples of answers, and validates both.
const VALIDATE: &str = "
import json, sys
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

document, answers = json.load(sys.stdin)
OpenAPIV31SpecValidator(document).validate()
for pointer, bodies in answers:
    schema = {'$ref': '#' + pointer, **document}
    for body in bodies:
        Draft202012Validator(schema).validate(body)
";

fn document() -> Value {
    serde_json::from_str(super::super::openapi::TEXT).unwrap()
}

#[test]
fn document_is_served_to_readers() {
    let answer = Port::new().get("/openapi.json", &[]);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(answer.body, super::super::openapi::TEXT);
    let request = Request::post("/openapi.json").body("").unwrap();
    assert_eq!(Port::new().ask(request).header("allow"), Some("GET, HEAD"));
}

fn operations(document: &Value) -> Vec<(&str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, operation)| (path.as_str(), &operation["post"]))
        .collect()
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

fn answers(document: &Value) -> Vec<(&str, Vec<Value>)> {
    let mut answers = Vec::new();
    for (path, operation) in operations(document) {
        let examples = object(&operation["requestBody"]["content"]["application/json"]["examples"]);
        assert!(examples.len() >= 3, "{path}");
        let mut bodies = Vec::new();
        for (name, example) in examples {
            for rule in ["admits", "refuses", "withholds"] {
                let port = Port::new();
                if rule != "admits" {
                    port.plane.limit("checkout", 0.0).unwrap();
                    port.plane.shadow("checkout", rule == "withholds").unwrap();
                }
                let answer = port.post(path, &example["value"].to_string());
                let documented = object(&operation["responses"]);
                assert!(
                    answer.status < 300 && documented.contains_key(&answer.status.to_string()),
                    "{path} {name}: {answer:?}"
                );
                bodies.extend(
                    Some(answer)
                        .filter(|answer| answer.status == 200)
                        .map(|answer| answer.json()),
                );
            }
        }
        answers.push((path, bodies));
    }
    answers
}

#[test]
fn every_example_is_answered_with_success() {
    let document = document();
    let answers = answers(&document);
    let checks = answers
        .iter()
        .find(|(path, _)| *path == "/v1/check")
        .unwrap();
    assert!(
        checks.1.iter().any(|body| body["allowed"] == false),
        "{checks:?}"
    );
    assert!(
        checks.1.iter().any(|body| body.get("withheld").is_some()),
        "{checks:?}"
    );
}

#[test]
fn independent_program_finds_document_and_answers_valid() {
    let document = document();
    let of_check = |path: &str| {
        format!(
            "/paths/{}/post/responses/200/content/application~1json/schema",
            path.replace('/', "~1")
        )
    };
    let mut answers: Vec<Value> = answers(&document)
        .into_iter()
        .filter(|(_, bodies)| !bodies.is_empty())
        .map(|(path, bodies)| json!([of_check(path), bodies]))
        .collect();
    let problem = Port::new()
        .post("/v1/check", r#"{"bucket":"b","cost":0}"#)
        .json();
    answers.push(json!(["/components/schemas/Problem", [problem]]));
    if !has_python_package("sidecar::openapi", "jsonschema, openapi_spec_validator") {
        return;
    }
    python(VALIDATE, &json!([document, answers]).to_string())
        .unwrap_or_else(|error| panic!("{error}"));
}
