//! `plimsoll simulate`: tries a policy against scripted traffic and faults before anything runs on it.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_simulator::{Broken, Outcome, Run, Scenario, broken, plot, simulate};

#[cfg(test)]
mod tests;

/// The exit code for an expectation that was broken.
const EXIT_BROKEN: u8 = 1;
/// The exit code for a scenario that is not valid or cannot be read.
const EXIT_REFUSED: u8 = 2;

/// Run scenarios: the code that runs in production, under a virtual clock
///
/// A scenario says what is offered to which fleet under which policy, what breaks, and what is expected. Exit code 0:
/// every expectation was met; 1: one was broken; 2: a scenario is not valid, with the place of every fault.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct SimulateArgs {
    /// The scenarios
    #[arg(required = true, env = "PLIMSOLL_SCENARIOS", value_delimiter = ',', value_name = "SCENARIO.yaml")]
    scenarios: Vec<PathBuf>,

    /// How many seeds to run each scenario with
    #[arg(long, env = "PLIMSOLL_SEEDS", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    /// The first seed; the others follow it
    #[arg(long, env = "PLIMSOLL_FIRST_SEED", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    first_seed: u64,

    /// How often the controller decides, instead of what the scenario says
    #[arg(long, env = "PLIMSOLL_TICK_MS", value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    tick_ms: Option<u64>,

    /// How to say what came of it
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: Output,

    /// Draw the first seed of the scenario, which must be the only one, as SVG
    #[arg(long, env = "PLIMSOLL_PLOT", value_name = "OUT.svg")]
    plot: Option<PathBuf>,

    /// How many threads to use; unless given, one for each core
    #[arg(long, env = "PLIMSOLL_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    threads: Option<u16>,
}

const EXAMPLE: &str = "\
Example: will 10,000 requests/s hold when traffic jumps to ten times that?

  name: step-up
  duration_s: 60
  warmup_s: 10
  zones: 3
  clients: 99
  policy:  { buckets: { api: { limit: 10000, mode: enforce } } }   # or policy_file: policy.yaml
  traffic:
    - bucket: api
      load: { steps: [ { at_s: 0, rps: 8000 }, { at_s: 20, rps: 100000 } ] }
      # your own day: load: { trace: { csv: counts.csv } } with the columns t_s,rps
  expect: { api: { long_run_error: [-0.01, 0.01], worst_1s: [0, 2] } }

  plimsoll simulate step-up.yaml --plot step-up.svg

docs/scenarios.md has every key and figure; simulator/examples/own-traffic.yaml takes its traffic from a CSV file.";

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    /// For people: a table; broken expectations go to standard error
    #[default]
    Table,
    /// For scripts: one JSON document for each scenario, on a line of its own
    Json,
}

/// Runs the scenarios and says what came of them.
///
/// # Errors
/// When something cannot be written.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let code = simulate_all(args, &mut io::stdout().lock(), &mut io::stderr().lock())?;
    Ok(ExitCode::from(code))
}

fn simulate_all(args: &SimulateArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<u8> {
    let mut scenarios = Vec::new();
    for path in &args.scenarios {
        match Scenario::read(path) {
            Ok(scenario) => scenarios.push(match args.tick_ms {
                Some(tick) => scenario.with_tick(Duration::from_millis(tick)),
                None => scenario,
            }),
            Err(error) => {
                writeln!(err, "{error}")?;
                return Ok(EXIT_REFUSED);
            }
        }
    }
    if args.plot.is_some() && scenarios.len() > 1 {
        writeln!(err, "error: --plot draws one scenario, and there are {}", scenarios.len())?;
        return Ok(EXIT_REFUSED);
    }
    let mut code = 0;
    for scenario in &scenarios {
        let (runs, outcome) = one(args, scenario);
        if let Some(path) = &args.plot
            && let Some(run) = runs.first()
        {
            plot::svg(scenario, run, path)?;
        }
        let broken = broken(scenario, &runs);
        match args.output {
            Output::Table => table(&outcome, out)?,
            Output::Json => {
                serde_json::to_writer(&mut *out, &outcome)?;
                writeln!(out)?;
            }
        }
        out.flush()?;
        complain(scenario, &runs, &broken, err)?;
        if !broken.is_empty() {
            code = EXIT_BROKEN;
        }
    }
    Ok(code)
}

fn one(args: &SimulateArgs, scenario: &Scenario) -> (Vec<Run>, Outcome) {
    let threads = args
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let bar = progress(scenario, args.seeds);
    let since = Instant::now();
    let seeds = args.first_seed..args.first_seed + args.seeds;
    let runs = simulate(scenario, seeds, threads, &|seconds| bar.inc(seconds));
    bar.finish_and_clear();
    let mut outcome = Outcome::of(scenario, &runs);
    outcome.wall_s = Some(since.elapsed().as_secs_f64());
    (runs, outcome)
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(scenario: &Scenario, seeds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seeds * scenario.duration().as_secs());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} s, {eta} left") {
        bar.set_style(style);
    }
    bar.set_message(scenario.name().to_owned());
    bar
}

fn complain(scenario: &Scenario, runs: &[Run], broken: &[Broken], err: &mut impl Write) -> io::Result<()> {
    for broken in broken {
        writeln!(err, "broken: {}: {broken}", scenario.name())?;
    }
    let refusals: Vec<&String> = runs.iter().flat_map(|run| &run.refusals).collect();
    if let Some(first) = refusals.first() {
        writeln!(
            err,
            "warning: {}: {} streams were refused, such as {first}",
            scenario.name(),
            refusals.len()
        )?;
    }
    Ok(())
}

// === the table ===

fn table(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    let seeds = if outcome.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", outcome.seeds) };
    write!(out, "{}: {seeds}, {:.0} s simulated", outcome.scenario, outcome.simulated_s)?;
    if let Some(wall_s) = outcome.wall_s {
        write!(out, " in {wall_s:.1} s")?;
    }
    writeln!(out, ", trace {}", outcome.trace_hash)?;
    for (name, bucket) in &outcome.buckets {
        let limit = bucket.limit_rps.map_or("none".to_owned(), |limit| format!("{limit:.0}"));
        writeln!(out, "  {name}  limit {limit} rps")?;
        let rates = format!("{:.0} offered, {:.0} admitted", bucket.offered_rps, bucket.admitted_rps);
        row(out, "requests/s", &rates)?;
        row(out, "of the limit", &format!("{} in all", ratio(bucket.mean_ratio)))?;
        let worst = [("worst", bucket.worst_1s), ("p99", bucket.p99_1s)];
        row(out, "in 1 s", &listed(&worst, ratio))?;
        row(out, "in 10 s", &listed(&[("worst", bucket.worst_10s), ("p99", bucket.p99_10s)], ratio))?;
        let errors = [("long run", bucket.long_run_error), ("worst minute", bucket.error_60s)];
        row(out, "error", &listed(&errors, percent))?;
        let lost = [("goodput lost", bucket.goodput_lost), ("refused", bucket.would_drop_ratio)];
        row(out, "requests", &listed(&lost, percent))?;
        if bucket.settle_s.median.is_some() {
            let settle = bucket.settle_s;
            let text = format!("{} s median, {} s p95", seconds(settle.median), seconds(settle.p95));
            row(out, "settled in", &text)?;
        }
        if bucket.tenants.len() > 1 {
            writeln!(
                out,
                "    {:<24} {:>9} {:>9} {:>9} {:>8}",
                "tenant", "offered", "admitted", "share", "refused"
            )?;
            for (tenant, figures) in &bucket.tenants {
                let share = figures.share_rps.map_or("-".to_owned(), |share| format!("{share:.0}"));
                let (offered, admitted) = (figures.offered_rps, figures.admitted_rps);
                let refused = percent(figures.drop_ratio);
                writeln!(out, "    {tenant:<24} {offered:>9.0} {admitted:>9.0} {share:>9} {refused:>8}")?;
            }
        }
    }
    Ok(())
}

fn row(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "    {name:<14} {text}")
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.1} %", value * 100.0))
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.1}"))
}

fn listed(values: &[(&str, Option<f64>)], written: fn(Option<f64>) -> String) -> String {
    let texts: Vec<String> =
        values.iter().map(|(name, value)| format!("{name} {}", written(*value))).collect();
    texts.join(", ")
}
