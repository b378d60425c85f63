//! Everything that a public signature names can be named by a service that depends on this crate alone: no path
//! here begins with another crate of the workspace.

use std::error::Error;

use plimsoll_tower::{
    EitherBody, Limiter, Pass, PathFault, PlimsollBody, PlimsollLayer, PlimsollService,
    RateLimitHeaders, Refused, ResponseBody, ResponseFuture, Rule, Rules, RulesError, Tenant,
    TenantError, Verdict,
};

/// A type can be a field of a service's struct, shared by its tasks.
fn is_a_field<T: Send + Sync + 'static>() {}
fn is_an_error<E: Error + Send + Sync + 'static>() {}

#[test]
fn types_of_the_middleware_can_be_fields() {
    is_a_field::<(
        PlimsollLayer,
        PlimsollLayer<EitherBody>,
        PlimsollService<()>,
        PlimsollBody<()>,
    )>();
    is_a_field::<(Limiter, Verdict)>();
    is_a_field::<(Rule, Rules, Tenant, Pass, RateLimitHeaders)>();
    is_a_field::<ResponseFuture<(), EitherBody>>();
    let _: fn(&Refused<'_>) -> http::Response<http_body_util::Full<axum::body::Bytes>> =
        |refused| refused.response();
    fn body<R, B: ResponseBody<R>>(body: B::Body) -> B::Body {
        body
    }
    let _: fn(PlimsollBody<axum::body::Body>) -> _ = body::<axum::body::Body, EitherBody>;
}

#[test]
fn errors_of_the_layer_can_be_returned() {
    is_an_error::<RulesError>();
    is_an_error::<TenantError>();
    is_an_error::<PathFault>();
}
