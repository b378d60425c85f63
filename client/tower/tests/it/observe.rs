//! The events and span fields of decisions, with a subscriber that keeps them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use plimsoll_tower::testing::ControlPlane;
use plimsoll_tower::{PlimsollLayer, Reason, Rule, Rules, Tenant};
use tower::ServiceExt;
use tower_http::trace::TraceLayer;
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

#[derive(Clone, Default)]
struct Kept {
    events: Arc<Mutex<Vec<Fields>>>,
    spans: Arc<Mutex<Vec<Fields>>>,
    open: Arc<Mutex<BTreeMap<u64, usize>>>,
}

impl<S: Subscriber> Layer<S> for Kept {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut spans = self.spans.lock().unwrap();
        self.open.lock().unwrap().insert(id.into_u64(), spans.len());
        spans.push(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let at = self.open.lock().unwrap()[&id.into_u64()];
        record.record(&mut self.spans.lock().unwrap()[at]);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "plimsoll" {
            assert_eq!(*event.metadata().level(), Level::WARN);
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.events.lock().unwrap().push(fields);
        }
    }
}

async fn send(plane: &ControlPlane, paths: &[&str]) -> Kept {
    let rules = [
        Rule::unlimited().exact("/health"),
        Rule::bucket("orders").exact("/orders"),
    ];
    let rules = Rules::new(&plane.limiter(), Tenant::default(), rules).unwrap();
    let trace = TraceLayer::new_for_http().make_span_with(|request: &Request<Body>| {
        tracing::info_span!(
            "request",
            path = request.uri().path(),
            plimsoll.verdict = Empty,
            plimsoll.bucket = Empty,
            plimsoll.reason = Empty
        )
    });
    let app = Router::new()
        .route("/{*path}", get(|| async { "served" }))
        .layer(PlimsollLayer::new(rules))
        .layer(trace);
    let kept = Kept::default();
    let _guard =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(kept.clone()));
    for path in paths {
        let request = Request::get(*path).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap();
    }
    kept
}

#[tokio::test]
async fn spans_have_verdict_bucket_and_reason() {
    let plane = ControlPlane::new(1);
    let admitted = send(&plane, &["/orders", "/health", "/other"]).await;
    plane.refuse("orders", Reason::TenantLimit).unwrap();
    let refused = send(&plane, &["/orders"]).await;
    let fields = |kept: &Kept| {
        let spans = kept.spans.lock().unwrap();
        let field = |span: &Fields, name: &str| span.0.get(name).cloned().unwrap_or_default();
        let names = [
            "path",
            "plimsoll.verdict",
            "plimsoll.bucket",
            "plimsoll.reason",
        ];
        spans
            .iter()
            .map(|span| names.map(|name| field(span, name)).join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        fields(&admitted),
        [
            "/orders admitted orders ",
            "/health passed  unlimited",
            "/other passed  no_rule",
        ]
    );
    assert_eq!(fields(&refused), ["/orders refused orders tenant_limit"]);
}

#[tokio::test]
async fn refusals_of_ten_seconds_are_one_event() {
    const REQUESTS: usize = 50;
    let plane = ControlPlane::new(1);
    plane.refuse("orders", Reason::ClusterOverload).unwrap();
    let kept = send(&plane, &["/orders"; REQUESTS]).await;
    let events = kept.events.lock().unwrap().clone();
    let first = &events[0].0;
    assert_eq!(
        (first["bucket"].as_str(), first["reason"].as_str()),
        ("orders", "cluster_overload")
    );
    assert_eq!(first["suppressed_refusals"], "0");
    let (whole, millis) = first["retry_after_s"]
        .split_once('.')
        .unwrap_or((&first["retry_after_s"], ""));
    assert!(
        whole.parse::<u64>().unwrap() >= 1 && millis.len() <= 3,
        "{first:?}"
    );
    // A slow machine may take more than ten seconds for all.
    let logged: usize = events
        .iter()
        .map(|event| event.0["suppressed_refusals"].parse::<usize>().unwrap() + 1)
        .sum();
    assert!(
        events.len() < REQUESTS && logged <= REQUESTS,
        "{logged} refusals in {} events",
        events.len()
    );
    assert_eq!(plane.counts("orders").unwrap().offered, REQUESTS as u64);
    let quiet = ControlPlane::new(1);
    assert!(
        send(&quiet, &["/orders"])
            .await
            .events
            .lock()
            .unwrap()
            .is_empty(),
        "admitted requests are not logged"
    );
}
