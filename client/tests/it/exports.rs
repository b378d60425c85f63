//! Everything that a public signature names can be named by a service that depends on this crate alone: no path
//! here begins with another crate of the workspace.

use plimsoll_client::testing::{ControlPlane, Decisions, RuleError};
use plimsoll_client::{
    BucketError, BucketHandle, BucketRef, BucketStatus, BuildError, CertificateHealth,
    CertificatesError, DropRatio, Feed, FeedError, FeedHandle, FeedState, Flushed, Health,
    InvalidName, InvalidPeerId, InvalidRate, Limiter, LimiterBuilder, Metrics, Peek, PeerId,
    PeerRole, ProblemStatus, Reason, Refusal, Request, SetupProblem, Status, TraceId, Verdict,
};
use std::error::Error;

/// A type can be a field of a service's struct, shared by its tasks.
fn is_a_field<T: Send + Sync + 'static>() {}
fn is_an_error<E: Error + Send + Sync + 'static>() {}

#[test]
fn types_of_the_limiter_can_be_fields() {
    is_a_field::<(
        Limiter,
        LimiterBuilder,
        BucketHandle,
        Feed,
        FeedHandle,
        Metrics,
    )>();
    is_a_field::<(Verdict, Refusal, Reason, Peek, DropRatio, TraceId, Flushed)>();
    is_a_field::<(Status, BucketStatus, ProblemStatus)>();
    is_a_field::<(
        Health,
        CertificateHealth,
        FeedState,
        SetupProblem,
        PeerId,
        PeerRole,
    )>();
    is_a_field::<(Request<'static>, BucketRef<'static>)>();
}

#[test]
fn types_for_tests_can_be_fields() {
    is_a_field::<(ControlPlane, Decisions)>();
}

#[test]
fn errors_can_be_returned_and_matched() {
    is_an_error::<BuildError>();
    is_an_error::<BucketError>();
    is_an_error::<FeedError>();
    is_an_error::<SetupProblem>();
    is_an_error::<Refusal>();
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
    Limiter::builder("a name")
        .build_detached()
        .map(drop)
        .unwrap_or_else(cause);
}
