//! Targets for HTTP input: headers and paths of requests, bodies of commands, and answers of
//! Prometheus.

use std::cell::LazyCell;

use http::{Request, Uri};
use plimsoll_admin::kill_api::{DrillOrder, KillOff, KillOn};
use plimsoll_controller::admin::aggregator_routes::Forget;
use plimsoll_controller::admin::rollout_routes::{Abort, DryRun, Promote, Reset, Resume};
use plimsoll_controller::parsers;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::kill::Scope;
use plimsoll_tower::{Head, Rule, Rules, Tenant};

use super::tiers::{self, START};

pub(super) fn prometheus(data: &[u8]) {
    parsers::prometheus_answer(data);
}

/// Every accepted header has its own trace, in lower case.
pub(super) fn traceparent(data: &[u8]) {
    if let Some(trace) = TraceId::of_traceparent(data) {
        let hex: String = trace
            .to_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(data.get(3..35), Some(hex.as_bytes()));
    }
}

thread_local! {
    /// Rules without a default, so that a request without a key shows.
    static RULES: LazyCell<Rules> = LazyCell::new(|| {
        let (limiter, _) = tiers::client(3, "zone-a");
        let rules = [Rule::bucket("checkout").path("/checkout"), Rule::bucket("orders").prefix("/orders")];
        Rules::new(&limiter, Tenant::header("x-tenant").unwrap(), rules).unwrap()
    });
}

/// A path that names a limited handler once it is decoded is limited.
pub(super) fn path(data: &[u8]) {
    let Ok(uri) = Uri::try_from(data) else { return };
    let mut decoded = Vec::new();
    let mut rest = uri.path().as_bytes();
    while let [byte, after @ ..] = rest {
        let escape = rest.get(1..3).and_then(|hex| std::str::from_utf8(hex).ok());
        let escape = escape.filter(|hex| *byte == b'%' && !hex.starts_with('+'));
        let code = escape.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    let is_limited = RULES.with(|rules| rules.ask(Head::of(&request), |_| ()).is_ok());
    if decoded == b"/checkout" || decoded.starts_with(b"/orders/") {
        assert!(is_limited, "{}", request.uri());
    }
}

/// Every valid order can be carried out.
pub(super) fn admin(data: &[u8]) {
    let _ = serde_json::from_slice::<DrillOrder>(data);
    let _ = serde_json::from_slice::<Forget>(data);
    let _ = serde_json::from_slice::<Promote>(data);
    let _ = serde_json::from_slice::<Abort>(data);
    let _ = serde_json::from_slice::<Resume>(data);
    let _ = serde_json::from_slice::<Reset>(data);
    let _ = serde_json::from_slice::<DryRun>(data);
    let mut zone = tiers::zone(2, "zone-a");
    if let Ok(KillOn { bucket, .. }) = serde_json::from_slice(data) {
        let _ = zone.order_kill(START, &Scope::from(bucket), true);
    }
    if let Ok(KillOff { bucket, .. }) = serde_json::from_slice(data) {
        let _ = zone.order_kill(START, &Scope::from(bucket), false);
    }
}
