//! The OpenAPI document of the admin port, made of the types that its handlers read and write.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::http::{Method, header};
use plimsoll_admin::access::{Needs, Role, Route, Routes};
use plimsoll_admin::body::ErrorBody;
use plimsoll_admin::kill_api::{DrillOrder, DrillReport, KillEnded, KillOff, KillOn, KillStatus};
use plimsoll_policy::Forecast;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::aggregators::routes::{Forget, Forgotten};
use super::audit_routes::AuditQuery;
use super::console::View;
use super::history_routes::{ExportQuery, ImportQuery, Imported};
use super::rollout_routes::{
    Abort, Ack, Done, DryRun, DryRunResult, EntryStatus, Promote, Reset, Resume, Resumed,
    Returning, Undo,
};
use super::state_routes::Acknowledged;
use super::status::catalogue::RowQuery;
use super::status::why::{Why, WhyQuery};
use super::status::{Policies, RowGrants, Status};
use crate::members::{MembersStatus, Resigned};
use crate::state::Change;
use crate::tasks::events::{Event, EventPage, EventQuery, QuotaReset};

const PATH: &str = "/openapi.json";
const CSV: &str = "text/csv";
const TEXT: &str = "text/plain";

/// One route with the types of its requests and answers.
pub(crate) struct Operation {
    pub(crate) route: Route,
    summary: &'static str,
    query: Option<Described>,
    body: Option<Content>,
    answer: Content,
    /// Standbys answer it, too.
    pub(crate) is_of_all: bool,
}

type Described = fn(&mut SchemaGenerator) -> Schema;

#[derive(Clone, Copy)]
enum Content {
    Json(Described),
    /// Text of this media type.
    Text(&'static str),
}

/// All operations of a controller.
pub(crate) static OPERATIONS: [Operation; 37] = [
    open("/metrics", "Metrics in the format of Prometheus")
        .needs(Needs::Metrics)
        .text(TEXT)
        .of_all(),
    open("/healthz", "Answers while the process lives")
        .text(TEXT)
        .of_all(),
    open(
        "/readyz",
        "Answers 200 while the process can do its work, else 503",
    )
    .text(TEXT)
    .of_all(),
    open("/", "The console").text("text/html").of_all(),
    open("/console/{file}", "A file of the console")
        .text("*/*")
        .of_all(),
    open(PATH, "This document")
        .json::<Map<String, Value>>()
        .of_all(),
    open(
        "/lead",
        "Answers 200 at the controller that leads, and 503 at one that stands by",
    )
    .text(TEXT)
    .of_all(),
    get("/console/stream", "The view of the console each second")
        .query::<View>()
        .text("text/event-stream"),
    get("/status", "The state of the fleet").json::<Status>(),
    get(
        "/catalogue",
        "What the row of the catalogue grants a tenant; null without a row",
    )
    .query::<RowQuery>()
    .json::<Option<RowGrants>>(),
    get("/why", "Why a tenant is refused")
        .query::<WhyQuery>()
        .json::<Why>(),
    get("/rollout", "The rollout of each entry of the policy").json::<Vec<EntryStatus>>(),
    get("/rollout/history", "Changes of stages, the oldest first").json::<Vec<Change>>(),
    post("/rollout/promote", Role::Operator, "Promotes an entry")
        .body::<Promote>()
        .json::<Done>(),
    post(
        "/rollout/abort",
        Role::Operator,
        "Returns an entry to shadow",
    )
    .body::<Abort>()
    .json::<Done>(),
    get("/rollout/resume", "The entries that a kill put in shadow").json::<Vec<Returning>>(),
    post(
        "/rollout/resume",
        Role::Operator,
        "Returns entries to the stages that they had before a kill",
    )
    .body::<Resume>()
    .json::<Resumed>(),
    post(
        "/rollout/reset",
        Role::Operator,
        "Begins the evidence of an entry anew",
    )
    .body::<Reset>()
    .json::<Done>(),
    get("/policy", "The policy in force and the held one").json::<Policies>(),
    post("/policy/ack", Role::Admin, "Releases the held policy")
        .body::<Ack>()
        .json::<Policies>(),
    get(
        "/policy/forecast",
        "The effect of the held policy; null without one",
    )
    .json::<Option<Forecast>>(),
    post(
        "/policy/dry-run",
        Role::Viewer,
        "The effect of a policy that is not saved",
    )
    .body::<DryRun>()
    .json::<DryRunResult>(),
    get(
        "/policy/undo",
        "The effect of a return to the policy before the last change",
    )
    .json::<DryRunResult>(),
    post(
        "/policy/undo",
        Role::Admin,
        "Returns to the policy before the last change",
    )
    .body::<Undo>()
    .json::<Policies>(),
    get("/kill", "The kill switch").json::<KillStatus>(),
    post(
        "/kill/on",
        Role::Operator,
        "Kills the fleet or a bucket: every request is admitted",
    )
    .body::<KillOn>()
    .json::<KillStatus>()
    .of_all(),
    post("/kill/off", Role::Operator, "Ends a kill")
        .body::<KillOff>()
        .json::<KillEnded>(),
    post(
        "/kill/drill",
        Role::Operator,
        "Measures how long a kill takes to reach every client",
    )
    .body::<DrillOrder>()
    .json::<DrillReport>(),
    post(
        "/aggregators/forget",
        Role::Operator,
        "Frees the share of an aggregator that does not return",
    )
    .body::<Forget>()
    .json::<Forgotten>(),
    post(
        "/state/acknowledge-loss",
        Role::Operator,
        "Acknowledges that the state was lost",
    )
    .json::<Acknowledged>(),
    get("/audit", "Lines of the audit log, the oldest first")
        .query::<AuditQuery>()
        .text("application/x-ndjson"),
    get("/events", "A page of the events, the oldest first")
        .query::<EventQuery>()
        .json::<EventPage>(),
    post(
        "/events/quota-reset",
        Role::Operator,
        "Adds that quotas were reset at a quota server",
    )
    .body::<QuotaReset>()
    .json::<Event>(),
    get("/history", "Minutes of the history")
        .query::<ExportQuery>()
        .text(CSV),
    post("/history", Role::Admin, "Imports minutes of the history")
        .query::<ImportQuery>()
        .csv()
        .json::<Imported>(),
    get("/members", "The controllers of a fleet that has several")
        .json::<MembersStatus>()
        .of_all(),
    post(
        "/lead/resign",
        Role::Operator,
        "Hands the lead over, in a fleet of several controllers",
    )
    .json::<Resigned>()
    .of_all(),
];

const fn operation(
    method: Method,
    path: &'static str,
    needs: Needs,
    summary: &'static str,
) -> Operation {
    Operation {
        route: Route {
            method,
            path,
            needs,
        },
        summary,
        query: None,
        body: None,
        answer: Content::Text(TEXT),
        is_of_all: false,
    }
}

const fn open(path: &'static str, summary: &'static str) -> Operation {
    operation(Method::GET, path, Needs::Nothing, summary)
}

const fn get(path: &'static str, summary: &'static str) -> Operation {
    operation(Method::GET, path, Needs::Role(Role::Viewer), summary)
}

const fn post(path: &'static str, role: Role, summary: &'static str) -> Operation {
    operation(Method::POST, path, Needs::Role(role), summary)
}

/// The route of the document, which all callers may read.
pub(crate) fn routes() -> Routes {
    // Made once: callers without a token ask for it, too.
    let text: Arc<LazyLock<Bytes>> = Arc::new(LazyLock::new(|| document().to_string().into()));
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Routes::new().open(Method::GET, PATH, async move || (kind, Bytes::clone(&text)))
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|it| it.definitions_path = "/components/schemas".into());
    let mut asked = settings.clone().for_deserialize().into_generator();
    let mut answered = settings.for_serialize().into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in &OPERATIONS {
        let method = operation.route.method.as_str().to_ascii_lowercase();
        let described = operation.describe(&mut asked, &mut answered);
        paths
            .entry(operation.route.path)
            .or_default()
            .insert(method, described);
    }
    let mut schemas = asked.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Plimsoll: admin port of a controller",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Routes that the commands and the console use.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

// === impl Operation ===

impl Operation {
    const fn needs(mut self, needs: Needs) -> Self {
        self.route.needs = needs;
        self
    }

    const fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    const fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Content::Json(SchemaGenerator::subschema_for::<T>));
        self
    }

    const fn csv(mut self) -> Self {
        self.body = Some(Content::Text(CSV));
        self
    }

    const fn json<T: JsonSchema>(mut self) -> Self {
        self.answer = Content::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    const fn text(mut self, media_type: &'static str) -> Self {
        self.answer = Content::Text(media_type);
        self
    }

    const fn of_all(mut self) -> Self {
        self.is_of_all = true;
        self
    }

    fn describe(&self, asked: &mut SchemaGenerator, answered: &mut SchemaGenerator) -> Value {
        let mut parameters = self.in_path();
        if let Some(query) = self.query {
            parameters.extend(in_query(&query(asked)));
        }
        let error = Content::Json(SchemaGenerator::subschema_for::<ErrorBody>);
        let mut failed = error.describe(answered);
        if let Content::Text(_) = self.answer {
            failed.extend(Content::Text(TEXT).describe(answered));
        }
        let mut described = json!({
            "summary": self.summary,
            "description": match self.route.needs {
                Needs::Nothing => "Needs no token.".to_owned(),
                Needs::Metrics => "Needs a token only with `--metrics-need-token`.".to_owned(),
                Needs::Role(role) => format!("Needs the role {role} or a higher one."),
            },
            "parameters": parameters,
            "responses": {
                "200": { "description": "Success", "content": self.answer.describe(answered) },
                "default": { "description": "The reason, in words", "content": failed },
            },
        });
        if let Some(body) = self.body {
            described["requestBody"] = json!({ "required": true, "content": body.describe(asked) });
        }
        if !matches!(self.route.needs, Needs::Role(_)) {
            described["security"] = json!([]);
        }
        described
    }

    fn in_path(&self) -> Vec<Value> {
        let names = self
            .route
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let each = names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
        each.collect()
    }
}

impl Content {
    fn describe(self, schemas: &mut SchemaGenerator) -> Map<String, Value> {
        let (media_type, schema) = match self {
            Self::Json(described) => ("application/json", described(schemas).to_value()),
            Self::Text(media_type) => (media_type, json!({ "type": "string" })),
        };
        Map::from_iter([(media_type.to_owned(), json!({ "schema": schema }))])
    }
}

/// Returns the fields of an object as parameters.
fn in_query(object: &Schema) -> Vec<Value> {
    let field = |name: &str| object.get(name).cloned().unwrap_or_default();
    let (properties, required) = (field("properties"), field("required"));
    let required = required.as_array().cloned().unwrap_or_default();
    let properties = properties.as_object().cloned().unwrap_or_default();
    let each = properties.into_iter().map(|(name, schema)| {
        let required = required.iter().any(|it| *it == *name);
        json!({ "name": name, "in": "query", "required": required, "schema": schema })
    });
    each.collect()
}
