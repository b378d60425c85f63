//! `plimsoll simulate`: tries a policy against scripted traffic and faults before it runs in production.

mod table;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use plimsoll_simulator::{Judgement, Outcome, Run, Scenario, broken, plot, simulate};

use crate::output::{self, OutputArgs};

/// Exit code for an expectation that was not met.
const EXIT_UNMET: u8 = 1;
/// Exit code for a scenario that is invalid or cannot be read.
const EXIT_INVALID: u8 = 2;

/// Run scenarios: the production code under a virtual clock
///
/// A scenario describes the traffic, the fleet, the policy, the faults and the expectations. Exit code 0:
/// every expectation was met; 1: an expectation was not met, which is named on standard error, or an output
/// cannot be written; 2: a scenario is invalid, with the place of the fault.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct SimulateArgs {
    /// Scenario files
    #[arg(
        required = true,
        env = "PLIMSOLL_SCENARIOS",
        value_delimiter = ',',
        value_name = "SCENARIO.yaml"
    )]
    scenarios: Vec<PathBuf>,

    /// Number of seeds to run each scenario with
    #[arg(long, env = "PLIMSOLL_SEEDS", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    /// First seed; the others follow it
    #[arg(long, env = "PLIMSOLL_FIRST_SEED", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    first_seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Draw the first seed as SVG; requires a single scenario
    #[arg(long, env = "PLIMSOLL_PLOT", value_name = "OUT.svg")]
    plot: Option<PathBuf>,
}

const EXAMPLE: &str = "\
Example: does a limit of 10,000 requests/s hold when traffic jumps to ten times that?

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

docs/reference/scenarios.md has every key and figure; lib/simulator/examples/own-traffic.yaml takes its traffic from a CSV file.";

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let code = simulate_all(args, &mut output::stdout(), &mut output::stderr())?;
    Ok(ExitCode::from(code))
}

fn simulate_all(
    args: &SimulateArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let mut scenarios = Vec::new();
    for path in &args.scenarios {
        match Scenario::read(path) {
            Ok(variants) => scenarios.extend(variants),
            Err(error) => {
                writeln!(err, "{error}")?;
                return Ok(EXIT_INVALID);
            }
        }
    }
    if args.plot.is_some() && scenarios.len() > 1 {
        writeln!(
            err,
            "error: --plot draws a single scenario; there are {} with their variants",
            scenarios.len()
        )?;
        return Ok(EXIT_INVALID);
    }
    let mut code = 0;
    for scenario in &scenarios {
        let (runs, outcome) = simulate_one(args, scenario);
        let unmet = broken(scenario, &runs);
        args.output
            .write(out, &outcome, |out| table::write(&outcome, out))?;
        write_problems(scenario, &runs, &unmet, err)?;
        if !unmet.is_empty() {
            code = EXIT_UNMET;
        }
        if let Some(path) = &args.plot
            && let Some(run) = runs.first()
        {
            plot::svg(scenario, run, path)?;
        }
    }
    Ok(code)
}

fn simulate_one(args: &SimulateArgs, scenario: &Scenario) -> (Vec<Run>, Outcome) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let started = Instant::now();
    let seeds = args.first_seed..args.first_seed + args.seeds;
    let runs = simulate(scenario, seeds, threads, &|_| ());
    let mut outcome = Outcome::of(scenario, &runs);
    outcome.wall_s = Some(started.elapsed().as_secs_f64());
    (runs, outcome)
}

fn write_problems(
    scenario: &Scenario,
    runs: &[Run],
    unmet: &[Judgement],
    err: &mut dyn Write,
) -> io::Result<()> {
    let name = scenario.name();
    for expectation in unmet {
        writeln!(err, "unmet: {name}: {expectation}")?;
    }
    let rejections: Vec<&String> = runs.iter().flat_map(|run| &run.rejections).collect();
    if let Some(first) = rejections.first() {
        let count = rejections.len();
        writeln!(
            err,
            "warning: {name}: {count} rejections, of streams and of starts, the first with: {first}"
        )?;
    }
    Ok(())
}
