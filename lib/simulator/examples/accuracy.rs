//! Runs every scenario at both ticks with all seeds, and writes the tables of results into
//! `docs/control-law.md`, with plots next to it: `cargo run --release -p plimsoll-simulator
//! --example accuracy`.
//!
//! With arguments it runs only the scenarios with these prefixes and prints the tables: `...
//! --example accuracy -- 02 14-controller 25d-groups-30/240`. `SEEDS=3` runs fewer seeds and prints
//! the tables, too. Exit code 1: an expectation is not met.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_simulator::{
    BucketOutcome, Judgement, Outcome, P95_SEEDS, Run, Scenario, judged, plot, simulate,
};

const TICKS_MS: [u64; 2] = [500, 250];
const BEGIN: &str = "<!-- accuracy: begin -->";
const END: &str = "<!-- accuracy: end -->";
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

#[derive(Default)]
struct Tables {
    single: String,
    bounds: Vec<Bound>,
}

/// A bound that variants of a scenario share, with its largest value at each tick.
struct Bound {
    scenario: String,
    judgement: Judgement,
    largest: [Option<f64>; TICKS_MS.len()],
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let seeds = std::env::var("SEEDS").map_or(Ok(P95_SEEDS as u64), |seeds| seeds.parse())?;
    let writes = wanted.is_empty() && seeds >= P95_SEEDS as u64;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = root.with_file_name("docs");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (since, mut simulated, mut faults) = (Instant::now(), 0.0, 0);
    let mut tables = Tables::default();
    for scenario in scenarios(&root.join("scenarios"))? {
        if !wanted.is_empty()
            && !wanted
                .iter()
                .any(|wanted| scenario.name().starts_with(wanted.as_str()))
        {
            continue;
        }
        for (at, tick) in TICKS_MS.into_iter().enumerate() {
            let scenario = scenario.clone().with_tick(Duration::from_millis(tick));
            let began = Instant::now();
            let runs = simulate(&scenario, 0..seeds, threads, &|_| {});
            let outcome = Outcome::of(&scenario, &runs);
            simulated += outcome.simulated_s;
            println!(
                "{} at {tick} ms: {:.1} s",
                scenario.name(),
                began.elapsed().as_secs_f64()
            );
            let judged = judged(&scenario, &runs);
            let broken: Vec<&Judgement> = judged
                .iter()
                .filter(|judgement| !judgement.is_met())
                .collect();
            broken
                .iter()
                .for_each(|broken| println!("  broken: {broken}"));
            print_rejection(&runs);
            faults += broken.len();
            if let Some((name, _)) = scenario.name().split_once('/') {
                judged
                    .into_iter()
                    .for_each(|judgement| tables.enter(name, judgement, at));
            } else {
                for bucket in outcome.buckets.values() {
                    row(
                        &mut tables.single,
                        scenario.name(),
                        tick,
                        bucket,
                        broken.is_empty(),
                    )?;
                }
            }
            if writes && tick == TICKS_MS[0] && DRAWN.contains(&scenario.name()) {
                let folder = docs.join("control-law");
                std::fs::create_dir_all(&folder)?;
                plot::svg(
                    &scenario,
                    &runs[0],
                    &folder.join(format!("{}.svg", scenario.name())),
                )?;
            }
        }
    }
    let took = since.elapsed().as_secs_f64();
    println!("{simulated:.0} s simulated in {took:.0} s; {faults} bounds broken");
    let text = tables.text(seeds)?;
    if writes {
        write(&docs.join("control-law.md"), &text)?;
    } else {
        println!("{text}");
    }
    Ok(if faults == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn scenarios(folder: &Path) -> Result<Vec<Scenario>, Box<dyn Error>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(Scenario::read(file)?);
    }
    Ok(all)
}

impl Tables {
    fn enter(&mut self, scenario: &str, judgement: Judgement, tick: usize) {
        let value = judgement.value;
        let is_same = |bound: &&mut Bound| {
            let known = &bound.judgement;
            bound.scenario == scenario
                && (&known.bucket, &known.figure, known.bounds, known.window_s)
                    == (
                        &judgement.bucket,
                        &judgement.figure,
                        judgement.bounds,
                        judgement.window_s,
                    )
        };
        let known = self.bounds.iter_mut().find(is_same);
        if let Some(bound) = known {
            // `None` is below every value.
            bound.largest[tick] = [bound.largest[tick], value]
                .into_iter()
                .max_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
                .flatten();
        } else {
            let mut largest = [None; TICKS_MS.len()];
            largest[tick] = value;
            self.bounds.push(Bound {
                scenario: scenario.to_owned(),
                judgement,
                largest,
            });
        }
    }

    fn text(&self, seeds: u64) -> Result<String, std::fmt::Error> {
        let mut text = format!(
            "{seeds} seeds each; ratios are to the limit, `worst 1 s` is the worst of all seeds.\n\n\
             | scenario | tick, ms | admitted / limit | of the optimum | long-run error | worst 1 s | p99 of 1 s | p99 of 10 s | \
             goodput lost | settled, median / p95 | worst tenant | in bounds |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n{}\n\
             Scenarios with variants; of each bound the largest figure of all variants that have it.\n\n\
             | scenario | figure | from, to, s | at most | at 500 ms | at 250 ms |\n|---|---|---|---|---|---|\n",
            self.single
        );
        for Bound {
            scenario,
            judgement,
            largest,
        } in &self.bounds
        {
            let Judgement {
                figure,
                bounds: (_, max),
                window_s: (from, to),
                ..
            } = judgement;
            let shown = if figure.ends_with("_rps") {
                rate
            } else {
                percent
            };
            let [slow, quick] = largest.map(shown);
            let most = shown(Some(*max));
            writeln!(
                text,
                "| {scenario} | `{figure}` | {from}, {to} | {most} | {slow} | {quick} |"
            )?;
        }
        Ok(text)
    }
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
    let settle = bucket.settle_s.median.zip(bucket.settle_s.p95);
    let settle = settle.map_or("-".to_owned(), |(median, p95)| {
        format!("{median:.1} / {p95:.1} s")
    });
    let deviations = bucket
        .tenants
        .values()
        .filter_map(|tenant| tenant.deviation);
    let deviation = deviations.max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let deviation = if bucket.tenants.len() > 1 {
        percent(deviation)
    } else {
        "-".to_owned()
    };
    writeln!(
        table,
        "| {name} | {tick} | {} | {} | {} | {} | {} | {} | {} | {settle} | {deviation} | {} |",
        ratio(bucket.mean_ratio),
        ratio(bucket.optimum_ratio),
        percent(bucket.long_run_error),
        ratio(bucket.worst_1s),
        ratio(bucket.p99_1s),
        ratio(bucket.p99_10s),
        percent(bucket.goodput_lost),
        if holds { "yes" } else { "**no**" },
    )
}

fn percent(value: Option<f64>) -> String {
    // Rounded before printing, so that no zero has a sign.
    let rounded = |value: f64| (value * 1e4).round() / 1e2 + 0.0;
    value.map_or("-".to_owned(), |value| format!("{:.2} %", rounded(value)))
}

fn rate(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1} rps"))
}

fn write(path: &Path, tables: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let place = text
        .find(BEGIN)
        .zip(text.find(END))
        .filter(|(begin, end)| begin < end);
    let Some((begin, end)) = place else {
        return Err(format!(
            "{}: the markers {BEGIN} and {END} are missing",
            path.display()
        )
        .into());
    };
    std::fs::write(
        path,
        format!("{}{BEGIN}\n{tables}{}", &text[..begin], &text[end..]),
    )?;
    println!("written: {}", path.display());
    Ok(())
}
