//! Validates the loads, shares and retries of a scenario.

use std::path::Path;

use plimsoll_policy::{Field, Number};

use super::bounds::{Checked, DURATION_MAX_S, RPS_MAX, all_within, entries, whole, within};
use super::{WaitingCallers, trace_file};
use crate::traffic::{Load, Names, NamesSpec, Pareto, Retry, Share};

const NAMES_MAX: u32 = 10_000_000;
const CALLS_MAX: u32 = 1_000_000;
/// Shortest span of a shape: one step of the simulation.
const SPAN_MIN_S: f64 = 0.01;

fn rps<const N: usize>(rates: [(&str, Number); N], field: &Field<'_>) -> Checked<()> {
    all_within(rates, field, 0.0, RPS_MAX)
}

fn spans<const N: usize>(spans: [(&str, Number); N], field: &Field<'_>) -> Checked<()> {
    all_within(spans, field, SPAN_MIN_S, DURATION_MAX_S)
}

fn time(number: Number, field: &Field<'_>) -> Checked<f64> {
    within(number, field, 0.0, DURATION_MAX_S)
}

/// Checks the load of `bucket`, and reads the file of a [`Load::Trace`].
pub(crate) fn check_load(
    load: &mut Load,
    field: &Field<'_>,
    folder: &Path,
    bucket: &str,
) -> Checked<()> {
    match load {
        Load::Constant(rate) => rps([("constant", *rate)], field),
        Load::Steps(steps) => {
            let field = field.then("steps");
            let mut before = None;
            for (field, step) in entries(&field, steps.iter()) {
                let at = time(step.at_s, &field.then("at_s"))?;
                if before.is_some_and(|before| before >= at) {
                    let why = "not later than the step before";
                    return Err(field
                        .then("at_s")
                        .refuse(why, "write steps in the order of time"));
                }
                rps([("rps", step.rps)], &field)?;
                before = Some(at);
            }
            if steps.is_empty() {
                return Err(field.refuse("no steps", "write { at_s: 0, rps: 1000 }"));
            }
            Ok(())
        }
        Load::Ramp {
            from_rps,
            to_rps,
            start_s,
            end_s,
        } => {
            let field = field.then("ramp");
            let start = time(*start_s, &field.then("start_s"))?;
            within(
                *end_s,
                &field.then("end_s"),
                start + SPAN_MIN_S,
                DURATION_MAX_S,
            )?;
            rps([("from_rps", *from_rps), ("to_rps", *to_rps)], &field)
        }
        Load::Sine {
            mean_rps,
            amplitude_rps,
            period_s,
        } => {
            let field = field.then("sine");
            rps(
                [("mean_rps", *mean_rps), ("amplitude_rps", *amplitude_rps)],
                &field,
            )?;
            spans([("period_s", *period_s)], &field)
        }
        Load::Square {
            high_rps,
            low_rps,
            on_s,
            off_s,
            until_s,
        } => {
            let field = field.then("square");
            rps([("high_rps", *high_rps), ("low_rps", *low_rps)], &field)?;
            spans([("on_s", *on_s), ("off_s", *off_s)], &field)?;
            if let Some(until) = until_s {
                time(*until, &field.then("until_s"))?;
            }
            Ok(())
        }
        Load::Pareto(Pareto {
            mean_rps,
            alpha,
            on_s,
            off_s,
            per: _,
        }) => {
            let field = field.then("pareto");
            rps([("mean_rps", *mean_rps)], &field)?;
            // The mean is infinite at 1 and below.
            within(*alpha, &field.then("alpha"), 1.01, 100.0)?;
            spans([("on_s", *on_s), ("off_s", *off_s)], &field)
        }
        Load::Trace(trace) => trace_file::read(trace, &field.then("trace"), folder, bucket),
    }
}

pub(crate) fn check_shares(shares: &[Share], field: &Field<'_>, clients: u32) -> Checked<()> {
    let mut before = None;
    for (field, share) in entries(field, shares) {
        if share.first == 0 || share.first > clients {
            let why = format!(
                "there are {clients} clients, joined ones included, not {}",
                share.first
            );
            return Err(field
                .then("first")
                .refuse(why, "write how many of them carry this share"));
        }
        let of_load = within(share.of_load, &field.then("of_load"), 0.0, 1.0)?;
        let at_s = time(share.at_s, &field.then("at_s"))?;
        if before.is_some_and(|before| before >= at_s) {
            let why = "not later than the share before";
            return Err(field.then("at_s").refuse(why, "write shares in time order"));
        }
        if share.first == clients && of_load < 1.0 {
            let hint = "write of_load: 1.0, or name fewer clients";
            return Err(field
                .then("of_load")
                .refuse("no clients are left to carry the rest", hint));
        }
        before = Some(at_s);
    }
    Ok(())
}

pub(crate) fn check_retry(retry: Retry, field: &Field<'_>) -> Checked<()> {
    all_within([("probability", retry.probability)], field, 0.0, 1.0)?;
    if let Some(attempts) = retry.attempts {
        whole(attempts, &field.then("attempts"), 1, CALLS_MAX)?;
    }
    all_within([("backoff_s", retry.backoff_s)], field, 0.0, 3_600.0)?;
    all_within([("jitter", retry.jitter)], field, 0.0, 1.0)
}

pub(crate) fn check_callers(callers: WaitingCallers, field: &Field<'_>) -> Checked<()> {
    whole(callers.in_flight, &field.then("in_flight"), 1, CALLS_MAX)?;
    spans([("latency_s", callers.latency_s)], field)
}

pub(crate) fn names(spec: NamesSpec, field: &Field<'_>) -> Checked<Names> {
    let count = |count: u32, field: &Field<'_>| whole(count, field, 1, NAMES_MAX);
    match (
        spec.in_turn,
        spec.drawn.count,
        spec.drawn.zipf,
        spec.drawn.once,
    ) {
        (Some(of), ..) => Ok(Names::InTurn(count(of, field)?)),
        (_, Some(of), None, false) => Ok(Names::Equal(count(of, &field.then("count"))?)),
        (_, Some(of), Some(exponent), false) => Ok(Names::Zipf {
            count: count(of, &field.then("count"))?,
            exponent: within(exponent, &field.then("zipf"), 0.01, 10.0)?,
        }),
        (_, None, None, true) => Ok(Names::Once),
        _ => Err(field.refuse(
            "not a population",
            "write { count: 5000 }, { count: 5000, zipf: 1.1 } or { once: true }",
        )),
    }
}
