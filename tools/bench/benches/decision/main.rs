//! The cost of one decision, next to other rate limiters in the same run: on one thread and on two,
//! for one hot key and for ten thousand, with warm and with cold caches; and the cost of a layer
//! before an axum handler.
//!
//! Prints tables and bars, and writes the figures to `target/decision.json` for `./measure`.
//! Arguments are parts of names: only candidates with one of them in their name are measured.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // it measures or it stops

mod cold;
#[path = "../../src/figures.rs"]
mod figures;
mod layers;
mod loopback;
mod ours;
mod peers;
mod rounds;

use figures::{DECISIONS, Figures, REQUESTS};
use ours::Ours;
use rounds::{Candidate, Case};

const TENANTS: usize = 10_000;
const ROUNDS: usize = 21;
/// A layer's cost is the small difference of two figures, which needs more rounds.
const REQUEST_ROUNDS: usize = 61;
const ORDER: usize = 1 << 16;

fn evenly() -> Vec<u32> {
    let mut state = 7_u64;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % TENANTS as u64) as u32
    };
    (0..ORDER).map(|_| draw()).collect()
}

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_asked = |candidate: &Candidate<'_>| {
        asked.is_empty() || asked.iter().any(|part| candidate.name.contains(part))
    };
    let tenants: Vec<String> = (0..TENANTS)
        .map(|n| format!("orders/tenant_{n:04}"))
        .collect();
    // Header values of requests share no reference count, which threads would contend for.
    let leaked: Vec<&'static str> = tenants
        .iter()
        .map(|tenant| &*tenant.clone().leak())
        .collect();
    let evenly = evenly();
    // As long as the order of many keys, or the end of the order would be a part of the loop.
    let hot = || vec![1_234; 1_024];
    let case = |threads, order: Vec<u32>| Case { threads, order };
    println!("{}", figures::cpu());

    let ours = Ours::new(&tenants);
    let mut candidates = ours.all(&tenants);
    candidates.extend(peers::all(&tenants));
    candidates.retain(is_asked);
    let cases = [
        case(1, hot()),
        case(1, evenly.clone()),
        case(2, hot()),
        case(2, evenly.clone()),
    ];
    let warm = rounds::measure(&candidates, &cases, ROUNDS);
    let cold = cold::measure(&candidates, &tenants, &evenly, ROUNDS);
    let figures = warm
        .iter()
        .zip(cold)
        .map(|(warm, cold)| [warm[0], warm[1], cold, warm[2], warm[3]]);
    let decisions = named(&candidates, figures);
    print(
        "ns for one decision, as each thread sees it",
        &DECISIONS,
        &decisions,
    );

    let mut services = layers::all(&ours, &leaked);
    services.retain(is_asked);
    let cases = [case(1, hot()), case(1, evenly), case(2, hot())];
    let figures = rounds::measure(&services, &cases, REQUEST_ROUNDS);
    let requests = named(
        &services,
        figures
            .into_iter()
            .map(|cases| [cases[0], cases[1], cases[2]]),
    );
    print("ns for one request, without a socket", &REQUESTS, &requests);

    if !asked.is_empty() {
        return;
    }
    let http = loopback::measure(&ours, ROUNDS);
    let column = http
        .iter()
        .map(|(name, per_second)| (name.clone(), [*per_second]))
        .collect::<Vec<_>>();
    print("requests/s over 32 connections", &["HTTP/1.1"], &column);
    let figures = Figures {
        decisions,
        requests,
        http,
    };
    for bar in figures.bars() {
        let verdict = if bar.is_met { "ok    " } else { "MISSED" };
        println!("{verdict} {}: {} (bar: {})", bar.what, bar.figure, bar.bar);
    }
    figures.write().unwrap();
}

fn named<const N: usize>(
    candidates: &[Candidate<'_>],
    figures: impl Iterator<Item = [f64; N]>,
) -> Vec<(String, [f64; N])> {
    candidates
        .iter()
        .map(|candidate| candidate.name.to_owned())
        .zip(figures)
        .collect()
}

fn print<const N: usize>(what: &str, columns: &[&str; N], rows: &[(String, [f64; N])]) {
    print!("\n{what:<48}");
    columns.iter().for_each(|column| print!("{column:>20}"));
    println!();
    for (name, figures) in rows {
        print!("{name:<48}");
        figures.iter().for_each(|figure| print!("{figure:>20.1}"));
        println!();
    }
}
