//! The outcome of a scenario as a table.

use std::io::{self, Write};

use plimsoll_simulator::{NameFigures, Outcome};

use crate::output::{self, counted};

pub(super) fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let seeds = counted(outcome.seeds, "seed");
    write!(
        out,
        "{}: {seeds}, {:.0} s simulated",
        outcome.scenario, outcome.simulated_s
    )?;
    if let Some(wall_s) = outcome.wall_s {
        write!(out, " in {wall_s:.1} s")?;
    }
    writeln!(out, ", trace {}", outcome.trace_hash)?;
    for (name, bucket) in &outcome.buckets {
        let limit = bucket
            .limit_rps
            .map_or("none".to_owned(), |limit| format!("{limit:.0}"));
        writeln!(out, "  {name}  limit {limit} rps")?;
        let rates = format!(
            "{:.0} offered, {:.0} admitted",
            bucket.offered_rps, bucket.admitted_rps
        );
        row(out, "requests/s", &rates)?;
        row(
            out,
            "of the limit",
            &format!("{} in all", ratio(bucket.mean_ratio)),
        )?;
        let worst = [("worst", bucket.worst_1s), ("p99", bucket.p99_1s)];
        row(out, "in 1 s", &listed(&worst, ratio))?;
        row(
            out,
            "in 10 s",
            &listed(
                &[("worst", bucket.worst_10s), ("p99", bucket.p99_10s)],
                ratio,
            ),
        )?;
        let errors = [
            ("long run", bucket.long_run_error),
            ("worst minute", bucket.error_60s),
        ];
        row(out, "error", &listed(&errors, percent))?;
        row(out, "of the optimum", &ratio(bucket.optimum_ratio))?;
        let lost = [
            ("goodput lost", bucket.goodput_lost),
            ("refused", bucket.would_drop_ratio),
        ];
        row(out, "requests", &listed(&lost, percent))?;
        if bucket.settle_s.median.is_some() {
            let settle = bucket.settle_s;
            let text = format!(
                "{} s median, {} s p95",
                seconds(settle.median),
                seconds(settle.p95)
            );
            row(out, "settled in", &text)?;
        }
        if let Some(names) = &bucket.names {
            row(out, "names", &of_names(&names.all))?;
            for (tenant, names) in names.tenants.iter().filter(|_| names.tenants.len() > 1) {
                row(out, "", &format!("{tenant}: {}", of_names(names)))?;
            }
        }
        if bucket.tenants.len() > 1 {
            writeln!(
                out,
                "    {:<24} {:>9} {:>9} {:>9} {:>8}",
                "tenant", "offered", "admitted", "share", "refused"
            )?;
            for (tenant, figures) in &bucket.tenants {
                let share = figures
                    .share_rps
                    .map_or("-".to_owned(), |share| format!("{share:.0}"));
                let (offered, admitted) = (figures.offered_rps, figures.admitted_rps);
                let refused = percent(figures.drop_ratio);
                writeln!(
                    out,
                    "    {tenant:<24} {offered:>9.0} {admitted:>9.0} {share:>9} {refused:>8}"
                )?;
            }
        }
    }
    out.flush()
}

/// Formats admitted / fair by name.
fn of_names(names: &NameFigures) -> String {
    let NameFigures {
        min,
        p1,
        mean,
        p99,
        beyond,
    } = *names;
    let ratios = [("least", min), ("p1", p1), ("mean", mean), ("p99", p99)]
        .map(|(name, value)| (name, Some(value)));
    format!(
        "{} of fair, {:.2} % beyond chance",
        listed(&ratios, ratio),
        beyond * 100.0
    )
}

fn row(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "    {name:<14} {text}")
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), output::percent)
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.1}"))
}

fn listed(values: &[(&str, Option<f64>)], format: fn(Option<f64>) -> String) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{name} {}", format(*value)))
        .collect();
    texts.join(", ")
}
