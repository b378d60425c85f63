//! A surge at a service that finishes work for callers who have gone: rude callers keep it down, polite ones do not. On
//! a clock that waits for nothing.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;

use super::*;
use crate::cmd::service::CapacityArgs;
use crate::load::Schedule;
use crate::load::schedule::Arrivals;

/// Requests/s that the service can answer, and where the surge of 30 s begins and ends.
const CAPACITY: f64 = 400.0;
const SURGE: (usize, usize) = (20, 50);
const RUN_S: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(1);

/// The requests of each second, by the time at which they were first sent.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    sent: f64,
    useful: f64,
    attempts: f64,
}

/// Returns the seconds of a run whose load is a share of the capacity, and three times that in the surge.
async fn run(manners: Manners, load: f64, seed: u64) -> Vec<Second> {
    let queue = CapacityArgs {
        workers: NonZeroUsize::new(16),
        work_ms: NonZeroU64::new(40),
        queue: 464,
    };
    let queue = Arc::new(Mutex::new(queue.capacity().unwrap()));
    let seconds = Arc::new(Mutex::new(vec![Second::default(); RUN_S + 1]));
    let (caller, started) = (Caller::new(manners, 3), Instant::now());
    let rps = CAPACITY * load;
    let rates = format!(
        "{rps},{}@{}s,{rps}@{}s,0@{RUN_S}s",
        rps * 3.0,
        SURGE.0,
        SURGE.1
    );
    let rates: Schedule = rates.parse().unwrap();
    let mut calls = JoinSet::new();
    for due_s in Arrivals::new(rates, SmallRng::seed_from_u64(seed)) {
        let (caller, queue, seconds) = (caller.clone(), Arc::clone(&queue), Arc::clone(&seconds));
        calls.spawn(async move {
            let second = due_s as usize;
            sleep_until(started + Duration::from_secs_f64(due_s)).await;
            seconds.lock().unwrap()[second].sent += 1.0;
            let attempt = service_fn(async |_| {
                seconds.lock().unwrap()[second].attempts += 1.0;
                let done = queue.lock().unwrap().take(Instant::now());
                let mut answer = Response::new(());
                match done.map(|done| done - Instant::now()) {
                    None => *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
                    Some(left) if left > TIMEOUT => {
                        sleep(TIMEOUT).await;
                        return Err(Failure::TimedOut);
                    }
                    Some(left) => sleep(left).await,
                }
                Ok(answer)
            });
            let answer = caller.send(attempt, Request::new(Empty::new())).await;
            let is_useful = answer.is_ok_and(|answer| answer.status() == StatusCode::OK);
            seconds.lock().unwrap()[second].useful += f64::from(u8::from(is_useful));
        });
    }
    calls.join_all().await;
    Arc::into_inner(seconds).unwrap().into_inner().unwrap()
}

/// Returns the share of the requests that had a useful answer.
fn goodput(seconds: &[Second]) -> f64 {
    let sum = |figure: fn(&Second) -> f64| seconds.iter().map(figure).sum::<f64>();
    sum(|second| second.useful) / sum(|second| second.sent)
}

#[tokio::test(start_paused = true)]
async fn rude_callers_keep_a_service_down() {
    for seed in 0..2 {
        for load in [0.6, 0.8] {
            let seconds = run(Manners::Rude, load, seed).await;
            assert!(goodput(&seconds[..SURGE.0]) > 0.99, "before the surge");
            let after = goodput(&seconds[SURGE.1..SURGE.1 + 20]);
            println!("rude, {load} of the capacity: {after:.3} after the surge");
            if load > 0.7 {
                assert!(after < 0.2, "seed {seed}: {after}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn polite_callers_let_a_service_recover() {
    for seed in 0..2 {
        for load in [0.6, 0.8] {
            let seconds = run(Manners::Polite, load, seed).await;
            let after = goodput(&seconds[SURGE.1 + 10..RUN_S]);
            let attempts = seconds.iter().map(|second| second.attempts).sum::<f64>();
            let attempts = attempts / seconds.iter().map(|second| second.sent).sum::<f64>();
            println!("polite, {load} of the capacity: {after:.3}, {attempts:.3} attempts");
            assert!(after >= 0.95, "seed {seed}: {after}");
            assert!(attempts <= 1.1, "seed {seed}: {attempts}");
        }
    }
}
