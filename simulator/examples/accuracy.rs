//! Runs every scenario at both ticks with all seeds, and writes the table of results into
//! `docs/control-law.md`, with plots beside it: `cargo run --release -p plimsoll-simulator --example
//! accuracy`.
//!
//! With arguments it runs only the scenarios with these prefixes and writes nothing: `... --example accuracy
//! -- 02 14-controller`. `SEEDS=3` runs fewer seeds and writes nothing either. Exit code 1: an expectation is
//! not met.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_simulator::{BucketOutcome, Outcome, P95_SEEDS, Run, Scenario, broken, plot, simulate};

const TICKS_MS: [u64; 2] = [500, 250];
/// The markers around the table in the document.
const BEGIN: &str = "<!-- accuracy: begin -->";
const END: &str = "<!-- accuracy: end -->";
/// The scenarios with a plot.
const DRAWN: [&str; 8] = [
    "02-step-up",
    "03-step-down",
    "04-ramp",
    "06-square-0.5s",
    "08-pareto",
    "14-controller-away-2x-6x",
    "16-tenants-light-hungry",
    "19-aggregator-restart",
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let seeds = std::env::var("SEEDS").map_or(Ok(P95_SEEDS as u64), |seeds| seeds.parse())?;
    let writes = wanted.is_empty() && seeds >= P95_SEEDS as u64;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = root.with_file_name("docs");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (since, mut simulated, mut faults) = (Instant::now(), 0.0, 0);
    let mut table = String::new();
    for path in files(&root.join("scenarios"))? {
        let scenario = Scenario::read(&path)?;
        if !wanted.is_empty() && !wanted.iter().any(|wanted| scenario.name().starts_with(wanted.as_str())) {
            continue;
        }
        for tick in TICKS_MS {
            let scenario = scenario.clone().with_tick(Duration::from_millis(tick));
            let began = Instant::now();
            let runs = simulate(&scenario, 0..seeds, threads, &|_| {});
            let outcome = Outcome::of(&scenario, &runs);
            simulated += outcome.simulated_s;
            println!("{} at {tick} ms: {:.1} s", scenario.name(), began.elapsed().as_secs_f64());
            let broken = broken(&scenario, &runs);
            broken.iter().for_each(|broken| println!("  broken: {broken}"));
            print_rejection(&runs);
            faults += broken.len();
            for bucket in outcome.buckets.values() {
                row(&mut table, scenario.name(), tick, bucket, broken.is_empty())?;
            }
            if writes && tick == TICKS_MS[0] && DRAWN.contains(&scenario.name()) {
                let folder = docs.join("control-law");
                std::fs::create_dir_all(&folder)?;
                plot::svg(&scenario, &runs[0], &folder.join(format!("{}.svg", scenario.name())))?;
            }
        }
    }
    let took = since.elapsed().as_secs_f64();
    println!("{simulated:.0} s simulated in {took:.0} s; {faults} bounds broken");
    if writes {
        write(&docs.join("control-law.md"), seeds, &table)?;
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn print_rejection(runs: &[Run]) {
    if let Some(first) = runs.iter().flat_map(|run| &run.rejections).next() {
        println!("  a stream was rejected: {first}");
    }
}

fn row(
    table: &mut String,
    name: &str,
    tick: u64,
    bucket: &BucketOutcome,
    holds: bool,
) -> Result<(), std::fmt::Error> {
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    // Rounded before printing, so that no zero has a sign.
    let rounded = |value: f64| (value * 1e4).round() / 1e2 + 0.0;
    let percent =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.2} %", rounded(value)));
    let settle = bucket.settle_s.median.zip(bucket.settle_s.p95);
    let settle = settle.map_or("-".to_owned(), |(median, p95)| format!("{median:.1} / {p95:.1} s"));
    let deviations = bucket.tenants.values().filter_map(|tenant| tenant.deviation);
    let deviation = deviations.max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let deviation = if bucket.tenants.len() > 1 { percent(deviation) } else { "-".to_owned() };
    writeln!(
        table,
        "| {name} | {tick} | {} | {} | {} | {} | {} | {} | {settle} | {deviation} | {} |",
        ratio(bucket.mean_ratio),
        percent(bucket.long_run_error),
        ratio(bucket.worst_1s),
        ratio(bucket.p99_1s),
        ratio(bucket.p99_10s),
        percent(bucket.goodput_lost),
        if holds { "yes" } else { "**no**" },
    )
}

/// Writes the table between the markers of the document.
fn write(path: &Path, seeds: u64, table: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let place = text.find(BEGIN).zip(text.find(END)).filter(|(begin, end)| begin < end);
    let Some((begin, end)) = place else {
        return Err(format!("{}: the markers {BEGIN} and {END} are missing", path.display()).into());
    };
    let head = "| scenario | tick, ms | admitted / limit | long-run error | worst 1 s | p99 of 1 s | p99 of 10 s | \
                goodput lost | settled, median / p95 | worst tenant | in bounds |\n\
                |---|---|---|---|---|---|---|---|---|---|---|\n";
    let note =
        format!("{seeds} seeds each; ratios are to the limit, `worst 1 s` is the worst of all seeds.\n\n");
    let table = format!("{}{BEGIN}\n{note}{head}{table}{}", &text[..begin], &text[end..]);
    std::fs::write(path, table)?;
    println!("written: {}", path.display());
    Ok(())
}
