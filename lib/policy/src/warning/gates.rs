//! Gates of a rollout that can never pass, however good the traffic is.

use std::time::Duration;

use plimsoll_core::decision::Mode;

use super::Warning;
use crate::buckets::BucketPolicy;
use crate::yaml::Field;

/// Maximum requests/s above the limit that a gate can see: a window holds only time with requests,
/// so a bucket with few requests still shows one in each tick of half a second.
const SPARSE_RPS: f64 = 2.0;

/// Returns the warnings about the gates between the mode of a bucket in the file and enforce. Each has the place
/// of the setting at fault: in the bucket's own rollout block, else in that of the policy.
pub(super) fn of_bucket(
    root: &Field<'_>,
    field: &Field<'_>,
    bucket: &BucketPolicy,
) -> Vec<Warning> {
    let rollout = &bucket.rollout;
    if bucket.mode == Mode::Enforce || !(rollout.require_gates || rollout.auto_promote) {
        return Vec::new();
    }
    let warning = |path: &[&str], why: String| {
        let place = || {
            path.iter()
                .fold(root.then("rollout"), |field, name| field.then(name))
        };
        let place = written(field, path)
            .or_else(|| written(root, path))
            .unwrap_or_else(place);
        Warning::of(&place, why)
    };
    let (shadow, canary) = (&rollout.shadow, &rollout.canary);
    let windows = [
        (
            Mode::Canary,
            ["shadow", "window_h"],
            shadow.window,
            shadow.max_drop_ratio,
        ),
        (
            Mode::Enforce,
            ["canary", "window_min"],
            canary.window,
            canary.max_drop_ratio,
        ),
    ];
    let mut warnings = Vec::new();
    for (to, path, window, max_drop_ratio) in
        windows.into_iter().filter(|(to, ..)| *to > bucket.mode)
    {
        let limit = bucket.highest_limit().map(|limit| limit.per_second());
        if window.is_zero() {
            let why = format!("the gate to {to} can never pass: a window of 0 has no samples");
            warnings.push(warning(&path, why));
        } else if limit == Some(0.0) && max_drop_ratio < 1.0 {
            let why = format!("the gate to {to} can never pass: a limit of 0 refuses everything");
            warnings.push(Warning::of(&field.then("limit"), why));
        } else if let Some(limit) = limit
            && let most = samples_max(limit, window, max_drop_ratio)
            && most < rollout.min_samples as f64
        {
            let (due, window) = (rollout.min_samples, window.as_secs_f64());
            let why = format!(
                "the gate to {to} can never pass: within the limit of {limit} requests/s a window of {window} s has at \
                 most {most:.0} samples of the {due} due"
            );
            warnings.push(Warning::of(&field.then("limit"), why));
        }
    }
    let percent = rollout.canary_percent.get();
    if percent == 0.0 || percent == 100.0 {
        let missing = if percent == 0.0 {
            "canary cohort"
        } else {
            "control cohort to compare latency with; only a fleet that reports none passes"
        };
        let why =
            format!("the gate to enforce can never pass: a canary of {percent} % has no {missing}");
        warnings.push(warning(&["canary_percent"], why));
    }
    warnings
}

fn written<'a>(of: &Field<'a>, path: &[&str]) -> Option<Field<'a>> {
    path.iter()
        .try_fold(of.entry("rollout")?, |field, name| field.entry(name))
}

/// Returns the maximum number of requests in a window if at most `max_drop_ratio` of them are
/// refused.
fn samples_max(limit: f64, window: Duration, max_drop_ratio: f64) -> f64 {
    if max_drop_ratio >= 1.0 {
        return f64::INFINITY;
    }
    (limit / (1.0 - max_drop_ratio) + SPARSE_RPS) * window.as_secs_f64()
}
