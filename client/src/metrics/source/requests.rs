//! The requests of the middleware: those that passed without a decision, and the responses to the others.

use crate::feed::Control;
#[cfg(feature = "middleware")]
use crate::hot::table::Table;
#[cfg(feature = "middleware")]
use crate::hot::thread_counters::Pass;
use crate::metrics::model::Family;
use crate::subscription::BucketResponses;

/// Returns the requests that passed without a decision.
#[cfg(feature = "middleware")]
pub(super) fn passed(table: &Table) -> Family {
    let series = Pass::ALL.map(|pass| (vec![pass.reason().to_owned()], table.passes.total(pass)));
    let help = "Requests that the middleware admitted without a decision, by reason (no_rule, unlimited, cors_preflight, \
                counted_before: a layer outside of it has decided).";
    Family::counter("plimsoll_requests_passed_total", help, &["reason"], series)
}

/// Returns the responses that the middleware has recorded.
pub(super) fn responses(control: &Control) -> [Family; 2] {
    let watched = control.subscription.with(|subscription, _| subscription.responses());
    let labels = |watched: &BucketResponses| vec![watched.bucket.to_string(), watched.cohort.to_owned()];
    let codes = watched.iter().flat_map(|watched| {
        let row = |(code, count): &(String, u64)| ([labels(watched), vec![code.clone()]].concat(), *count);
        watched.responses.codes.iter().map(row).collect::<Vec<_>>()
    });
    let help = "Responses, refusals included, by bucket, HTTP status or gRPC code (grpc_ok, ..) and, while the bucket is in \
                canary, cohort (canary, control); error: the service failed without a response, aborted: the caller cancelled \
                the request.";
    let codes = Family::counter("plimsoll_responses_total", help, &["bucket", "cohort", "code"], codes);
    let durations = watched.iter().map(|watched| (labels(watched), watched.responses.durations.clone()));
    let help = "Duration of admitted requests, until the service responds or the caller cancels.";
    let durations =
        Family::histogram("plimsoll_request_duration_seconds", help, &["bucket", "cohort"], durations);
    [codes, durations]
}
