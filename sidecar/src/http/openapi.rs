//! The OpenAPI document of the HTTP port, with schemas from the types that are read and written.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

use super::json::{BatchAnswer, Check, CheckAnswer, CheckBatch, Report, ReportBatch};
use super::problem::Document;

/// The path of the document. No token is needed for it.
pub(super) const PATH: &str = "/openapi.json";

static TEXT: OnceLock<Bytes> = OnceLock::new();

/// Answers with the document.
pub(super) fn response() -> Response<Full<Bytes>> {
    let text = TEXT.get_or_init(|| Bytes::from(text()));
    let mut response = Response::new(Full::new(text.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the document as a text that ends with a line.
pub(super) fn text() -> String {
    // A JSON value always serializes.
    serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
}

/// Makes the document. Its examples are requests that a test sends.
pub(super) fn document() -> Value {
    let mut schemas = Schemas::new();
    let check = json!({
        "post": {
            "operationId": "check",
            "summary": "Decide about a request, or about a batch",
            "description": "Counts the request and decides about it, without a network call of the sidecar. An invalid body \
                counts for nothing. Use a short timeout, and admit the request without an answer.",
            "requestBody": body(
                json!({ "oneOf": [schemas.input::<Check<'_>>(), schemas.input::<CheckBatch<'_>>()] }),
                json!({
                    "one": { "value": { "bucket": "checkout", "tenant": "acme" } },
                    "heavy": {
                        "value": {
                            "bucket": "checkout", "tenant": "acme", "cost": 5,
                            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                        }
                    },
                    "batch": {
                        "value": { "requests": [{ "bucket": "checkout" }, { "bucket": "search", "tenant": "acme" }] }
                    },
                    "together": {
                        "value": {
                            "requests": [
                                { "bucket": "by-workspace", "tenant": "acme" },
                                { "bucket": "by-user", "tenant": "jo" },
                            ],
                            "together": true,
                        }
                    },
                }),
            ),
            "responses": responses(&mut schemas, |schemas| {
                let schema =
                    json!({ "anyOf": [schemas.output::<CheckAnswer>(), schemas.output::<BatchAnswer>()] });
                ("200", json!({
                    "description": "The decision; also a refusal has this status.",
                    "content": { "application/json": {
                        "schema": schema,
                        "examples": {
                            "admitted": { "value": { "allowed": true, "limit_rps": 1000.0 } },
                            "refused": { "value": {
                                "allowed": false, "reason": "cluster_overload", "retry_after_ms": 2100,
                                "limit_rps": 1000.0,
                            } },
                            "shadow": { "value": {
                                "allowed": true, "limit_rps": 1000.0, "withheld": "cluster_overload",
                            } },
                        },
                    } },
                }))
            }),
        }
    });
    let report = json!({
        "post": {
            "operationId": "report",
            "summary": "Report responses to admitted requests",
            "description": "Lets the gates of a rollout compare failures and latency of the canary with the rest. A bucket \
                that the sidecar has not met is no error.",
            "requestBody": body(
                json!({ "oneOf": [schemas.input::<Report<'_>>(), schemas.input::<ReportBatch<'_>>()] }),
                json!({
                    "status": { "value": { "bucket": "checkout", "tenant": "acme", "status": 200, "latency_ms": 12.5 } },
                    "failed": { "value": { "bucket": "checkout", "failed": true } },
                    "batch": { "value": { "reports": [{ "bucket": "checkout", "status": 503, "latency_ms": 250 }] } },
                }),
            ),
            "responses": responses(&mut schemas, |_| ("204", json!({ "description": "Recorded." }))),
        }
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Plimsoll sidecar",
            "description": "Load shedding decisions for callers that cannot embed the client.",
            "version": "1",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:7421", "description": "The port on loopback, which needs no token." }],
        "security": [{}, { "bearer": [] }, { "token": [] }],
        "paths": { "/v1/check": check, "/v1/report": report },
        "components": {
            "schemas": schemas.take(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "A token, beyond loopback." },
                "token": {
                    "type": "apiKey", "in": "header", "name": "x-plimsoll-token",
                    "description": "The same token, where `authorization` belongs to another credential.",
                },
            },
        },
    })
}

fn body(schema: Value, examples: Value) -> Value {
    json!({ "required": true, "content": { "application/json": { "schema": schema, "examples": examples } } })
}

/// Returns the responses of an operation: the one of success, and the errors.
fn responses(schemas: &mut Schemas, success: impl FnOnce(&mut Schemas) -> (&'static str, Value)) -> Value {
    let (status, response) = success(schemas);
    let mut responses = json!({ status: response });
    for (status, description) in [
        ("400", "The body is invalid: `field` names the place."),
        ("401", "The port is beyond loopback, and the request has no valid token."),
        ("405", "The method is not POST."),
        ("408", "The body did not end in time."),
        ("413", "The body is larger than 64 KiB."),
        ("415", "The content type is not JSON."),
        ("429", "The address has sent too many requests without a valid token."),
    ] {
        let schema = schemas.output::<Document<'_>>();
        responses[status] = json!({ "description": description, "content": { "application/problem+json": { "schema": schema } } });
    }
    responses
}

/// The schemas of what is read and of what is written, whose rules for absent members differ.
struct Schemas {
    input: SchemaGenerator,
    output: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            input: settings().for_deserialize().into_generator(),
            output: settings().for_serialize().into_generator(),
        }
    }

    /// Returns a reference to the schema of a body that is read.
    fn input<T: JsonSchema>(&mut self) -> Value {
        self.input.subschema_for::<T>().to_value()
    }

    /// Returns a reference to the schema of a body that is written.
    fn output<T: JsonSchema>(&mut self) -> Value {
        self.output.subschema_for::<T>().to_value()
    }

    fn take(mut self) -> Value {
        let mut schemas = self.input.take_definitions(true);
        schemas.extend(self.output.take_definitions(true));
        Value::Object(schemas)
    }
}
