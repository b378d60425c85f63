//! `plimsoll-fuzz`: runs fuzz targets as a loop with a seed, or replays files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use plimsoll_fuzz::{TARGETS, Target, runner};

/// Run fuzz targets with mutated inputs, or replay files
#[derive(Debug, Parser)]
#[command(name = "plimsoll-fuzz", version, max_term_width = 100)]
struct Args {
    /// Target, or `all`
    target: String,
    /// Files to replay instead
    files: Vec<PathBuf>,
    /// Time for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add up to this many inputs that take another path to the corpus
    #[arg(long, default_value_t = 0, value_name = "N")]
    keep: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let names = || TARGETS.map(|target| target.name).join(", ");
    let targets: Vec<Target> = TARGETS
        .into_iter()
        .filter(|target| args.target == "all" || args.target == target.name)
        .collect();
    anyhow::ensure!(
        !targets.is_empty(),
        "no target `{}`; there are: {}",
        args.target,
        names()
    );
    let mut failed = false;
    println!(
        "{:<20} {:>10} {:>12} {:>10} {:>10}",
        "target", "inputs", "slowest_ms", "most_kib", "failures"
    );
    for target in targets {
        if !args.files.is_empty() {
            failed |= replay(&target, &args.files)?;
            continue;
        }
        let figures = runner::run(
            &target,
            Duration::from_secs(args.seconds),
            args.seed,
            args.keep,
        )?;
        let (slowest_ms, kib) = (
            figures.slowest.as_secs_f64() * 1e3,
            figures.bytes.div_ceil(1 << 10),
        );
        let failures = figures.failures.len();
        println!(
            "{:<20} {:>10} {slowest_ms:>12.1} {kib:>10} {failures:>10}",
            target.name, figures.runs
        );
        for (path, fault) in &figures.failures {
            failed = true;
            println!("{}: {fault}", target.name);
            println!(
                "cargo run --release -p plimsoll-fuzz -- {} {}",
                target.name,
                path.display()
            );
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn replay(target: &Target, files: &[PathBuf]) -> anyhow::Result<bool> {
    let mut failed = false;
    for file in files {
        let input =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let cost = runner::try_input(target, &input);
        let fault = cost.fault().or(cost.delay());
        println!(
            "{} {}: {}",
            target.name,
            file.display(),
            fault.as_deref().unwrap_or("ok")
        );
        failed |= fault.is_some();
    }
    Ok(failed)
}
