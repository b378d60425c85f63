//! Runs the grid of any number of names at any load and prints the worst figures as a table: `cargo
//! run --release -p plimsoll-simulator --example grid -- --threads 2`.
//!
//! Each run appends a line to `target/grid.csv`, and a run found there is not repeated: delete the
//! file after a change of the code. `--shard 1/4` runs a quarter of the grid, `--out FILE` names
//! another file, and `--only WORDS` runs the cells with these words in their names. Exit code 1: a
//! figure is out of bounds.

mod cells;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cells::{Cell, Figures, LIMITS, OFFERED, all};

const SEEDS: u64 = 3;

type Results = BTreeMap<(String, u64), Figures>;

struct Options {
    threads: usize,
    /// Number of this part of the grid, and number of parts.
    shard: (usize, usize),
    out: PathBuf,
    only: String,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options {
        threads,
        shard: (part, parts),
        out,
        only,
    } = Options::read()?;
    let known = read(&out)?;
    let runs = all()
        .into_iter()
        .flat_map(|cell| (0..SEEDS).map(move |seed| (cell, seed)));
    let wanted = runs
        .enumerate()
        .filter(|(at, (cell, _))| at % parts == part && cell.name().contains(&only));
    let wanted: Vec<(Cell, u64)> = wanted.map(|(_, run)| run).collect();
    let open: Vec<&(Cell, u64)> = wanted
        .iter()
        .filter(|(cell, seed)| !known.contains_key(&(cell.name(), *seed)))
        .collect();
    println!(
        "{} runs, {} of them done before",
        wanted.len(),
        wanted.len() - open.len()
    );
    let file = Mutex::new(OpenOptions::new().create(true).append(true).open(&out)?);
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), String> {
        while let Some((cell, seed)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let Figures {
                ratio_3s,
                ratio_10s,
                worst_1s,
            } = cell.run(*seed).map_err(|e| e.to_string())?;
            let took = began.elapsed().as_secs_f64();
            let line = format!(
                "{},{seed},{ratio_3s},{ratio_10s},{worst_1s},{took:.2}\n",
                cell.name()
            );
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or(Err("a thread panicked".to_owned())))
    })?;
    let results = read(&out)?;
    let of = |(cell, seed): &(Cell, u64)| Some((*cell, *results.get(&(cell.name(), *seed))?));
    let done: Vec<(Cell, Figures)> = wanted.iter().filter_map(of).collect();
    Ok(report(&done))
}

fn report(done: &[(Cell, Figures)]) -> ExitCode {
    println!(
        "\n| L | offered, L | runs | admitted from 10 s on | from 3 s on | worst second | out of bounds |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (limit, offered) in LIMITS
        .into_iter()
        .flat_map(|limit| OFFERED.map(|offered| (limit, offered)))
    {
        let of = |(cell, _): &&(Cell, Figures)| (cell.limit, cell.offered) == (limit, offered);
        let some: Vec<&(Cell, Figures)> = done.iter().filter(of).collect();
        if some.is_empty() {
            continue;
        }
        let span = |figure: fn(&Figures) -> f64| {
            let values = || some.iter().map(|(_, figures)| figure(figures));
            (
                values().fold(f64::INFINITY, f64::min),
                values().fold(0.0, f64::max),
            )
        };
        let [late, early, worst] = [
            |f: &Figures| f.ratio_10s,
            |f: &Figures| f.ratio_3s,
            |f: &Figures| f.worst_1s,
        ]
        .map(span);
        let broken = some
            .iter()
            .filter(|(cell, figures)| !cell.faults(*figures).is_empty())
            .count();
        println!(
            "| {limit} | {offered} | {} | {:.3} .. {:.3} | {:.3} .. {:.3} | {:.3} | {broken} |",
            some.len(),
            late.0,
            late.1,
            early.0,
            early.1,
            worst.1
        );
    }
    let faults: Vec<String> = done
        .iter()
        .flat_map(|(cell, figures)| cell.faults(*figures))
        .collect();
    println!("\n{} figures out of bounds", faults.len());
    faults.iter().for_each(|fault| println!("- {fault}"));
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Reads the results of earlier runs. Ignores a line that was cut off.
fn read(path: &Path) -> Result<Results, Box<dyn Error>> {
    let text = if path.exists() {
        std::fs::read_to_string(path)?
    } else {
        String::new()
    };
    let row = |line: &str| {
        let [cell, seed, ratio_3s, ratio_10s, worst_1s, _] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let number = |text: &str| text.parse::<f64>().ok();
        let (ratio_3s, ratio_10s) = (number(ratio_3s)?, number(ratio_10s)?);
        let figures = Figures {
            ratio_3s,
            ratio_10s,
            worst_1s: number(worst_1s)?,
        };
        Some(((cell.to_owned(), seed.parse().ok()?), figures))
    };
    Ok(text.lines().filter_map(row).collect())
}

impl Options {
    fn read() -> Result<Self, Box<dyn Error>> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/grid.csv");
        let mut options = Self {
            threads: cores,
            shard: (0, 1),
            out,
            only: String::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} has no value"))?;
            match name.as_str() {
                "--threads" => options.threads = value.parse()?,
                "--out" => options.out = value.into(),
                "--only" => options.only = value,
                "--shard" => {
                    let (part, parts) = value.split_once('/').ok_or("--shard is written as 1/4")?;
                    let (part, parts): (usize, usize) = (part.parse()?, parts.parse()?);
                    if part == 0 || part > parts {
                        return Err("--shard is 1/N to N/N".into());
                    }
                    options.shard = (part - 1, parts);
                }
                _ => {
                    return Err(format!("{name} is not --threads, --shard, --out or --only").into());
                }
            }
        }
        Ok(options)
    }
}
