//! The measurement of a few nanoseconds on a busy machine: in short windows, in interleaved rounds,
//! and only from windows without preemption.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Target length of a window, short so that most are not preempted.
const WINDOW: Duration = Duration::from_millis(3);
/// Maximum attempts at a window without preemption; then the last one counts.
const TRIES: usize = 25;
/// Minimum share of the longer window with both threads running.
const OVERLAP: f64 = 0.85;
/// Requests of a new thread before its window: the first thousand cost more, and threads of servers live long.
const WARM_UP: u64 = 2_000;

/// Makes a number of decisions for the given keys, cyclically; returns the number of admitted ones.
pub(crate) type Spin<'a> = Box<dyn Fn(&[u32], u64) -> u64 + Sync + 'a>;

pub(crate) struct Candidate<'a> {
    pub(crate) name: &'static str,
    pub(crate) spin: Spin<'a>,
}

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) threads: usize,
    pub(crate) order: Vec<u32>,
}

/// Makes a loop around `decide` by monomorphization, so that only the loop is called through a
/// pointer.
pub(crate) fn spin<'a>(decide: impl Fn(usize) -> bool + Sync + 'a) -> Spin<'a> {
    Box::new(move |order, times| {
        let mut admitted = 0;
        let mut left = times as usize;
        while left > 0 {
            let part = &order[..left.min(order.len())];
            for key in part {
                admitted += u64::from(decide(black_box(*key as usize)));
            }
            left -= part.len();
        }
        admitted
    })
}

pub(crate) fn measure(
    candidates: &[Candidate<'_>],
    cases: &[Case],
    rounds: usize,
) -> Vec<Vec<f64>> {
    let mut figures: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); cases.len()]; candidates.len()];
    let mut times: Vec<Vec<u64>> = candidates
        .iter()
        .map(|_| vec![1_000; cases.len()])
        .collect();
    for round in 0..=rounds {
        for (at, candidate) in candidates.iter().enumerate() {
            for (which, case) in cases.iter().enumerate() {
                let ns = window(candidate, case, times[at][which]);
                times[at][which] = ((WINDOW.as_nanos() as f64 / ns) as u64).max(100);
                // The first round only calibrates the windows.
                if round > 0 {
                    figures[at][which].push(ns);
                }
            }
        }
    }
    figures
        .into_iter()
        .map(|cases| cases.into_iter().map(median).collect())
        .collect()
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Nanoseconds for one decision in one window, as every thread of it sees them.
fn window(candidate: &Candidate<'_>, case: &Case, times: u64) -> f64 {
    let mut last = 0.0;
    for _ in 0..TRIES {
        let (ns, calm) = once(candidate, case, times);
        last = ns;
        if calm {
            break;
        }
    }
    last
}

fn once(candidate: &Candidate<'_>, case: &Case, times: u64) -> (f64, bool) {
    let start = Barrier::new(case.threads);
    let run = || {
        if case.threads > 1 {
            black_box((candidate.spin)(&case.order, WARM_UP));
        }
        start.wait();
        let before = interruptions();
        let from = Instant::now();
        black_box((candidate.spin)(&case.order, times));
        let to = Instant::now();
        (from, to, interruptions() == before)
    };
    let windows: Vec<(Instant, Instant, bool)> = match case.threads {
        1 => vec![run()],
        threads => std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        }),
    };
    let spans = windows
        .iter()
        .map(|(from, to, _)| (*to - *from).as_secs_f64());
    let (longest, all) = spans.fold((0.0_f64, 0.0), |(longest, all), span| {
        (longest.max(span), all + span)
    });
    let (Some(from), Some(to)) = (
        windows.iter().map(|w| w.0).max(),
        windows.iter().map(|w| w.1).min(),
    ) else {
        return (0.0, false);
    };
    let overlap = to.saturating_duration_since(from).as_secs_f64() / longest;
    let calm = overlap >= OVERLAP && windows.iter().all(|(.., calm)| *calm);
    (all / windows.len() as f64 / times as f64 * 1e9, calm)
}

/// Returns the preemptions of this thread so far; 0 where the system does not count them.
fn interruptions() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or_default()
}
