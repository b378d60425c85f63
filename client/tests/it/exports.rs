//! Everything that a public signature names can be named by a service that depends on this crate alone: no path
//! here begins with another crate of the workspace.

use std::error::Error;
use std::time::Duration;

use plimsoll_client::exchange::{
    Bucket, Child, Directives, Identity, InstanceId, Key, MonoTime, Name, Report, Role, StaleDirective,
    Tenant, Zone,
};
use plimsoll_client::middleware::{
    Charge, Decision, EitherBody, Extract, Head, LoadShed, LoadShedBody, LoadShedLayer, Pass, PathFault,
    RateLimitHeaders, Refused, ResolveFuture, ResolveTenant, ResolveTenantLayer, ResponseBody,
    ResponseFuture, Rule, Rules, RulesError, SameBody, TenantError,
};
use plimsoll_client::testing::{ControlPlane, Decisions, RuleError};
use plimsoll_client::{
    BucketError, BucketHandle, BucketStatus, BuildError, CertificateHealth, CertificatesError, Counts,
    DropRatio, Feed, FeedError, FeedHandle, FeedState, Flushed, Health, InvalidName, InvalidPeerId,
    InvalidRate, KeyHandle, Limiter, LimiterBuilder, Metrics, Peek, PeerId, PeerRole, ProblemStatus, Reason,
    Refusal, SetupProblem, Shard, Status, Subscription, TraceId, Verdict,
};

/// A type can be a field of a service's struct, shared by its tasks.
fn is_a_field<T: Send + Sync + 'static>() {}
/// An error can be returned from `main` with `?`.
fn is_an_error<E: Error + Send + Sync + 'static>() {}

#[test]
fn types_of_the_limiter_can_be_fields() {
    is_a_field::<(Limiter, LimiterBuilder, BucketHandle, KeyHandle, Feed, FeedHandle, Metrics)>();
    is_a_field::<(Verdict, Refusal, Reason, Peek, DropRatio, TraceId, Counts, Flushed)>();
    is_a_field::<(Status, BucketStatus, ProblemStatus)>();
    is_a_field::<(Health, CertificateHealth, FeedState, SetupProblem, Subscription, PeerId, PeerRole)>();
    // A shard is one thread's.
    let _: Option<fn(&mut Shard, &KeyHandle) -> Verdict> = Some(Shard::admit);
}

#[test]
fn types_of_the_middleware_can_be_fields() {
    use plimsoll_client::middleware::Tenant;
    is_a_field::<(
        LoadShedLayer,
        LoadShedLayer<SameBody>,
        LoadShed<()>,
        LoadShed<(), SameBody>,
        LoadShedBody<()>,
    )>();
    is_a_field::<(Rule, Rules, Tenant, Charge, Pass, RateLimitHeaders)>();
    is_a_field::<(ResponseFuture<(), EitherBody>, ResolveTenantLayer<()>, ResolveTenant<(), ()>)>();
    let _: Option<ResolveFuture<axum::Router, std::future::Ready<()>, axum::body::Body>> = None;
    let _: fn(&Refused<'_>) -> http::Response<axum::body::Bytes> = |refused| refused.response();
    fn body<R, B: ResponseBody<R>>(body: B::Body) -> B::Body {
        body
    }
    let _: fn(LoadShedBody<axum::body::Body>) -> _ = body::<axum::body::Body, EitherBody>;
    fn decide(extract: &impl Extract, head: Head<'_>) -> Decision {
        extract.decide(head)
    }
    let _: fn(&Rules, Head<'_>) -> Decision = decide;
}

#[test]
fn types_for_tests_can_be_fields() {
    is_a_field::<(ControlPlane, Decisions)>();
}

#[test]
fn errors_can_be_returned_and_matched_to_their_causes() {
    is_an_error::<BuildError>();
    is_an_error::<BucketError>();
    is_an_error::<FeedError>();
    is_an_error::<RulesError>();
    is_an_error::<SetupProblem>();
    is_an_error::<StaleDirective>();
    is_an_error::<TenantError>();
    is_an_error::<PathFault>();
    is_an_error::<RuleError>();
    let cause = |error: BuildError| match error {
        BuildError::Name { source, .. } => {
            let _: InvalidName = source;
        }
        BuildError::Rate(cause) => {
            let _: InvalidRate = cause;
        }
        BuildError::Certificates(cause) => {
            let _: CertificatesError = cause;
        }
        BuildError::WrongCertificate { certificate, .. } => {
            let _: PeerId = *certificate;
        }
        BuildError::NoIdentity(cause) => {
            let _: InvalidPeerId = cause;
        }
        _ => {}
    };
    Limiter::builder("a name").map(drop).unwrap_or_else(cause);
}

#[test]
fn transport_of_ones_own_needs_no_other_crate() {
    let identity = Identity {
        instance: InstanceId(7),
        name: "shop-0".parse::<Name>().unwrap(),
        service: "shop".parse::<Name>().unwrap(),
        zone: "eu-1a".parse::<Zone>().unwrap(),
        role: Role::Client,
    };
    let (limiter, mut subscription): (Limiter, Subscription) = Limiter::without_transport(identity, 64, 1, 7);
    let orders: BucketHandle = limiter.bucket("orders").unwrap();
    let verdict: Verdict = orders.admit("acme");
    assert_eq!(verdict, Verdict::Admit);

    subscription.on_open(MonoTime::ZERO);
    let report: Report = subscription.report(MonoTime::ZERO + Duration::from_secs(1));
    assert_eq!(report.seq, 1);
    let counts: Counts = orders.key("acme").counts();
    assert_eq!(counts, Counts { offered: 1, ..Counts::ZERO });
    let key = Key { bucket: "orders".parse::<Bucket>().unwrap(), tenant: "acme".parse::<Tenant>().unwrap() };
    assert_eq!(subscription.counts().get(&key), Some(&counts));
    let stale: Result<(), StaleDirective> = subscription.on_directives(MonoTime::ZERO, Directives::default());
    assert!(stale.is_err(), "a directive of no controller");
}
