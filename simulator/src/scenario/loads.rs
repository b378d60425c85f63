//! Validates the loads, shares and retries of a scenario.

use std::path::Path;

use plimsoll_policy::{Field, Number};

use super::check::{Checked, DURATION_MAX_S, within};
use super::spec::{ClientsSpec, LoadSpec, RetrySpec};
use super::trace_file;
use crate::traffic::{Load, Pareto, Retry, Share};

/// The highest rate of a load, in requests/s.
pub(crate) const RPS_MAX: f64 = 1e7;
/// The shortest span of a shape: one step of the simulation.
const SPAN_MIN_S: f64 = 0.01;

fn rps(number: Number, field: &Field<'_>, name: &str) -> Checked<f64> {
    within(number, &field.then(name), 0.0, RPS_MAX)
}

fn span(number: Number, field: &Field<'_>, name: &str) -> Checked<f64> {
    within(number, &field.then(name), SPAN_MIN_S, DURATION_MAX_S)
}

fn time(number: Number, field: &Field<'_>, name: &str) -> Checked<f64> {
    within(number, &field.then(name), 0.0, DURATION_MAX_S)
}

/// Reads the load of `bucket`.
pub(crate) fn load(spec: &LoadSpec, field: &Field<'_>, folder: &Path, bucket: &str) -> Checked<Load> {
    Ok(match spec {
        LoadSpec::Constant(rate) => Load::Constant(rps(*rate, field, "constant")?),
        LoadSpec::Steps(steps) => {
            let field = field.then("steps");
            let mut points: Vec<(f64, f64)> = Vec::new();
            for (index, step) in steps.iter().enumerate() {
                let field = field.then(&index.to_string());
                let at = time(step.at_s, &field, "at_s")?;
                if points.last().is_some_and(|(before, _)| *before >= at) {
                    let why = "not later than the step before";
                    return Err(field.then("at_s").refuse(why, "write steps in the order of time"));
                }
                points.push((at, rps(step.rps, &field, "rps")?));
            }
            if points.is_empty() {
                return Err(field.refuse("no steps", "write { at_s: 0, rps: 1000 }"));
            }
            Load::Steps(points)
        }
        LoadSpec::Ramp(ramp) => {
            let field = field.then("ramp");
            let start = time(ramp.start_s, &field, "start_s")?;
            let end = within(ramp.end_s, &field.then("end_s"), start + SPAN_MIN_S, DURATION_MAX_S)?;
            let (from, to) = (rps(ramp.from_rps, &field, "from_rps")?, rps(ramp.to_rps, &field, "to_rps")?);
            Load::Ramp { from, to, start, end }
        }
        LoadSpec::Sine(sine) => {
            let field = field.then("sine");
            Load::Sine {
                mean: rps(sine.mean_rps, &field, "mean_rps")?,
                amplitude: rps(sine.amplitude_rps, &field, "amplitude_rps")?,
                period: span(sine.period_s, &field, "period_s")?,
            }
        }
        LoadSpec::Square(square) => {
            let field = field.then("square");
            Load::Square {
                high: rps(square.high_rps, &field, "high_rps")?,
                low: rps(square.low_rps, &field, "low_rps")?,
                on: span(square.on_s, &field, "on_s")?,
                off: span(square.off_s, &field, "off_s")?,
                until: square.until_s.map(|until| time(until, &field, "until_s")).transpose()?,
            }
        }
        LoadSpec::Pareto(pareto) => {
            let field = field.then("pareto");
            Load::Pareto(Pareto {
                mean_rps: rps(pareto.mean_rps, &field, "mean_rps")?,
                // The mean is infinite at 1 and below.
                alpha: within(pareto.alpha, &field.then("alpha"), 1.01, 100.0)?,
                on_s: span(pareto.on_s, &field, "on_s")?,
                off_s: span(pareto.off_s, &field, "off_s")?,
            })
        }
        LoadSpec::Trace(trace) => trace_file::read(trace, &field.then("trace"), folder, bucket)?,
    })
}

pub(crate) fn shares(spec: Option<&ClientsSpec>, field: &Field<'_>, clients: u32) -> Checked<Vec<Share>> {
    let field = field.then("share");
    let mut shares: Vec<Share> = Vec::new();
    for (index, share) in spec.into_iter().flat_map(|spec| &spec.share).enumerate() {
        let field = field.then(&index.to_string());
        let first = field.then("first");
        if share.first == 0 || share.first > clients {
            let why = format!("there are {clients} clients, joined ones included, not {}", share.first);
            return Err(first.refuse(why, "write how many of them carry this share"));
        }
        let of_load = within(share.of_load, &field.then("of_load"), 0.0, 1.0)?;
        let at_s = time(share.at_s, &field, "at_s")?;
        if shares.last().is_some_and(|before| before.at_s >= at_s) {
            return Err(field
                .then("at_s")
                .refuse("not later than the share before", "write shares in time order"));
        }
        if share.first == clients && of_load < 1.0 {
            let hint = "write of_load: 1.0, or name fewer clients";
            return Err(field.then("of_load").refuse("no clients are left to carry the rest", hint));
        }
        shares.push(Share { at_s, first: share.first, of_load });
    }
    Ok(shares)
}

pub(crate) fn retry(spec: Option<&RetrySpec>, field: &Field<'_>) -> Checked<Option<Retry>> {
    spec.map(|spec| {
        Ok(Retry {
            probability: within(spec.probability, &field.then("probability"), 0.0, 1.0)?,
            backoff_s: within(spec.backoff_s, &field.then("backoff_s"), 0.0, 3_600.0)?,
            jitter: within(spec.jitter, &field.then("jitter"), 0.0, 1.0)?,
        })
    })
    .transpose()
}
