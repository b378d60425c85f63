//! A request to an axum handler that does nothing: without a layer, behind ours, and behind
//! tower_governor.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::header::{ACCEPT, HOST};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use plimsoll_tower::{PlimsollLayer, Rule, Rules, Tenant};
use tower::{Layer, Service};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};

use crate::figures::{NO_LAYER, OURS, PEER};
use crate::ours::Ours;
use crate::rounds::{Candidate, Spin};

pub(crate) const PATH: &str = "/orders";
pub(crate) const TENANT: &str = "x-tenant";

#[derive(Clone, Debug)]
pub(crate) struct TenantKey;

impl KeyExtractor for TenantKey {
    type Key = String;

    fn extract<B>(&self, request: &Request<B>) -> Result<String, GovernorError> {
        let value = request
            .headers()
            .get(TENANT)
            .and_then(|value| value.to_str().ok());
        value
            .map(ToOwned::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// The service without a layer. Its state is set, so that axum prepares the routes once instead of
/// for each request.
pub(crate) fn plain() -> Router {
    routes().with_state(())
}

fn routes() -> Router {
    Router::new().route(PATH, get(|| async {}))
}

pub(crate) fn ours(ours: &Ours) -> PlimsollLayer {
    let tenant = Tenant::header(TENANT).unwrap();
    let rules = [Rule::bucket("guard-alone").path(PATH)];
    PlimsollLayer::new(Rules::new(ours.guarded(), tenant, rules).unwrap())
}

pub(crate) fn peer() -> GovernorConfig<TenantKey, governor::middleware::NoOpMiddleware> {
    let mut builder = GovernorConfigBuilder::default().key_extractor(TenantKey);
    builder
        .per_nanosecond(1)
        .burst_size(u32::MAX)
        .finish()
        .unwrap()
}

pub(crate) fn on_routes<L>(layer: L) -> Router
where
    L: Layer<axum::routing::Route> + Clone + Send + Sync + 'static,
    L::Service: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Response: axum::response::IntoResponse + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
{
    routes().layer(layer).with_state(())
}

pub(crate) fn all<'a>(of: &'a Ours, tenants: &[&'static str]) -> Vec<Candidate<'a>> {
    let (ours, peer) = (ours(of), GovernorLayer::new(peer()));
    let values: Vec<HeaderValue> = tenants
        .iter()
        .map(|tenant| HeaderValue::from_static(tenant))
        .collect();
    let candidate = |name, spin: Spin<'static>| Candidate { name, spin };
    vec![
        candidate(NO_LAYER, calls(plain(), values.clone())),
        candidate(OURS[0], calls(on_routes(ours.clone()), values.clone())),
        candidate(OURS[1], calls(ours.layer(plain()), values.clone())),
        candidate(PEER[0], calls(on_routes(peer.clone()), values.clone())),
        candidate(PEER[1], calls(peer.layer(plain()), values)),
    ]
}

fn calls<S, R>(service: S, tenants: Vec<HeaderValue>) -> Spin<'static>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
{
    const NAME: HeaderName = HeaderName::from_static(TENANT);
    let (uri, host, accept) = (
        Uri::from_static(PATH),
        HeaderValue::from_static("shop"),
        HeaderValue::from_static("*/*"),
    );
    Box::new(move |order, times| {
        let mut service = service.clone();
        let mut context = Context::from_waker(Waker::noop());
        let mut admitted = 0;
        for at in 0..times as usize {
            let tenant = tenants[order[at & (order.len() - 1)] as usize].clone();
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = uri.clone();
            request.headers_mut().insert(HOST, host.clone());
            request.headers_mut().insert(ACCEPT, accept.clone());
            request.headers_mut().insert(NAME, tenant);
            let is_ready = service.poll_ready(&mut context).is_ready();
            let response = pin!(service.call(black_box(request))).poll(&mut context);
            let is_ok = matches!(&response, Poll::Ready(Ok(response)) if response.status() == StatusCode::OK);
            admitted += u64::from(is_ready && is_ok);
        }
        admitted
    })
}
