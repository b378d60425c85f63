//! The cost of one decision, beside other rate limiters in the same run: on one thread and on two, for one
//! hot key and for ten thousand.
//!
//! Prints a table, and writes the figures to `target/decision.json` for `./measure`. Arguments are parts of
//! names: only candidates whose name contains one of them are measured.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // it measures or it stops

mod ours;
mod peers;
mod rounds;

use ours::Ours;
use rounds::Case;

const TENANTS: usize = 10_000;
const ROUNDS: usize = 21;
/// Decisions before the order of keys repeats.
const ORDER: usize = 1 << 16;

fn cases() -> Vec<Case> {
    let hot = vec![1_234_u32];
    let mut state = 7_u64;
    let evenly: Vec<u32> = (0..ORDER)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % TENANTS as u64) as u32
        })
        .collect();
    let case = |name, threads, order: &Vec<u32>| Case { name, threads, order: order.clone() };
    vec![
        case("1 thread, hot", 1, &hot),
        case("1 thread, 10k", 1, &evenly),
        case("2 threads, hot", 2, &hot),
        case("2 threads, 10k", 2, &evenly),
    ]
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let tenants: Vec<String> = (0..TENANTS).map(|n| format!("orders/tenant_{n:04}")).collect();
    let ours = Ours::new(&tenants);
    let mut candidates = ours.all(&tenants);
    candidates.extend(peers::all(&tenants));
    candidates.retain(|candidate| asked.is_empty() || asked.iter().any(|part| candidate.name.contains(part)));
    let cases = cases();
    let figures = rounds::measure(&candidates, &cases, ROUNDS);

    print!("{:<48}", "ns for one decision, as each thread sees it");
    cases.iter().for_each(|case| print!("{:>16}", case.name));
    println!();
    for (candidate, figures) in candidates.iter().zip(&figures) {
        print!("{:<48}", candidate.name);
        figures.iter().for_each(|ns| print!("{ns:>16.1}"));
        println!();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")),
        std::path::PathBuf::from,
    );
    if asked.is_empty() {
        let rows: Vec<(&str, &Vec<f64>)> =
            candidates.iter().map(|candidate| candidate.name).zip(&figures).collect();
        std::fs::write(target.join("decision.json"), serde_json::to_string(&rows).unwrap()).unwrap();
    }
}
