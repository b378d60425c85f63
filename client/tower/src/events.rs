//! Events and span fields: refusals in the log, at most one line for each bucket in ten seconds, and every decision in
//! the spans that declare fields for it.

use std::sync::OnceLock;

use plimsoll_client::internals::{Pass, Recorder};
use plimsoll_core::decision::Refusal;
use quanta::Instant;
use tracing::{Level, Span};

const TARGET: &str = "plimsoll";
const VERDICT: &str = "plimsoll.verdict";
const BUCKET: &str = "plimsoll.bucket";
const REASON: &str = "plimsoll.reason";

static START: OnceLock<Instant> = OnceLock::new();

/// Logs a refusal unless its bucket's last event is less than ten seconds old, and records it in the current span.
/// Called after [`Recorder::refused`], whose count gives the number of suppressed refusals.
pub(super) fn refused(refusal: Refusal, recorder: Recorder) {
    record("refused", Some(refusal.reason().as_str()), Some(recorder));
    if !tracing::enabled!(target: TARGET, Level::WARN) {
        return;
    }
    recorder.log(
        START.get_or_init(Instant::now).elapsed(),
        |bucket, suppressed| {
            tracing::warn!(
                target: TARGET,
                bucket,
                reason = refusal.reason().as_str(),
                // Whole milliseconds: digits after those say nothing.
                retry_after_s = refusal.retry_after().as_millis() as f64 / 1e3,
                suppressed_refusals = suppressed,
                "request refused to shed load"
            );
        },
    );
}

/// Records an admission in the current span, by the first of its buckets; `None` for a bucket without room.
#[inline]
pub(super) fn admitted(recorder: Option<Recorder>) {
    record("admitted", None, recorder);
}

#[inline]
pub(super) fn passed(pass: Pass) {
    record("passed", Some(pass.reason()), None);
}

#[inline]
fn record(verdict: &'static str, reason: Option<&'static str>, recorder: Option<Recorder>) {
    let span = Span::current();
    if !span.is_disabled() && span.has_field(VERDICT) {
        span.record(VERDICT, verdict);
        reason.into_iter().for_each(|reason| {
            span.record(REASON, reason);
        });
        recorder.into_iter().for_each(|recorder| {
            recorder.with_name(|name| {
                span.record(BUCKET, name);
            });
        });
    }
}
