//! Background jobs that wait for admission, against the real law: their share of the possible
//! admissions without competition, next to other tenants and next to a flood of the same tenant,
//! and the number of attempts.

use std::time::Duration;

use plimsoll_aggregator::zone::Bounds;
use plimsoll_client::internals::{KeyHandle, Subscription};
use plimsoll_client::{Limiter, Verdict};
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Role;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::pair::{Pair, identity};

/// Tenant of the jobs.
const JOBS: &str = "batch";
const STEP: Duration = Duration::from_millis(10);
/// Time for the tiers to connect, the jobs to begin and the law to settle.
const SETTLING: Duration = Duration::from_secs(10);
/// Work of a job after each admission.
const WORK: Duration = Duration::from_millis(1);

/// Requests of a tenant that do not wait, at every instance.
struct Flood {
    tenant: &'static str,
    rps: f64,
}

struct Setting {
    limit: f64,
    instances: usize,
    /// Jobs of the tenant `batch` at each instance.
    jobs: usize,
    flood: Option<Flood>,
    /// Possible admissions of the jobs, as a share of the limit.
    possible: f64,
}

#[derive(Clone, Copy)]
enum Job {
    /// Sleeps for `retry_after` after each refusal.
    Sleeps,
    Waits,
}

/// Requests of the jobs in the measured time.
#[derive(Debug)]
struct Outcome {
    seconds: f64,
    /// By instance.
    admitted: Vec<u64>,
    attempts: u64,
    /// Requests of the same tenant that do not wait: offered and admitted.
    beside: [u64; 2],
}

impl Outcome {
    fn all(&self) -> u64 {
        self.admitted.iter().sum()
    }
}

struct Instance {
    limiter: Limiter,
    subscription: Subscription,
    stream: StreamId,
    /// Requests of the flood that are due.
    owed: f64,
    /// Requests of the jobs' tenant that do not wait: offered and admitted.
    beside: [u64; 2],
}

impl Instance {
    fn new(number: u64) -> Self {
        let identity = identity(Role::Client, u128::from(number));
        let (limiter, mut subscription) = Limiter::without_transport(identity, 64, 4, number);
        limiter.bucket("api").unwrap();
        subscription.on_open(MonoTime::ZERO);
        Self {
            limiter,
            subscription,
            stream: StreamId(number),
            owed: 0.0,
            beside: [0; 2],
        }
    }

    fn key(&self, tenant: &str) -> KeyHandle {
        self.limiter.bucket("api").unwrap().key(tenant)
    }

    /// Sends the requests of a step that do not wait.
    fn flood(&mut self, flood: &Flood) {
        let key = self.key(flood.tenant);
        self.owed += flood.rps * STEP.as_secs_f64();
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let is_admitted = key.check().is_admit();
            if flood.tenant == JOBS {
                self.beside[0] += 1;
                self.beside[1] += u64::from(is_admitted);
            }
        }
    }

    /// Returns the attempts of jobs, their admissions, and the other requests: offered and
    /// admitted.
    fn counts(&self) -> [u64; 4] {
        let counts = self.key(JOBS).counts();
        let [offered, admitted] = self.beside;
        [
            counts.offered - offered,
            counts.admitted() - admitted,
            offered,
            admitted,
        ]
    }
}

/// A job that never runs out of work.
fn start(limiter: Limiter, key: KeyHandle, job: Job) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let verdict = match job {
                Job::Sleeps => key.check(),
                Job::Waits => {
                    limiter
                        .check_async(&key.request().within(Duration::from_secs(600)))
                        .await
                }
            };
            match verdict {
                Verdict::Admit => sleep(WORK).await,
                Verdict::Refuse(refusal) => sleep(refusal.retry_after()).await,
            }
        }
    })
}

/// Runs until 1,000 requests would fit the limit.
async fn run(setting: &Setting, job: Job) -> Outcome {
    let policy = format!(
        "buckets: {{ api: {{ limit: {}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n",
        setting.limit
    );
    let tenants = "tenants: { default: { weight: 1 }, batch: { weight: 1 }, web: { weight: 1 } }\n";
    let mut pair = Pair::new(&policy, tenants, Bounds::default());
    let mut instances: Vec<Instance> = (1..=setting.instances as u64).map(Instance::new).collect();
    let seconds = 1_000.0 / setting.limit;
    let steps = |span: Duration| span.as_millis() / STEP.as_millis();
    let settled = steps(SETTLING);
    let all = settled + steps(Duration::from_secs_f64(seconds));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    let mut before: Vec<[u64; 4]> = Vec::new();
    for step in 0..all {
        let now = MonoTime::from_elapsed(begun.elapsed());
        for instance in &mut instances {
            instance.subscription.on_tick(now);
            if step % 10 == 0 {
                let report = instance.subscription.report(now);
                pair.zone.on_report(now, instance.stream, report).unwrap();
            }
        }
        if step % 10 == 0 {
            pair.zone.on_tick(now);
        }
        if step % 50 == 0 {
            pair.roll_up(now);
        }
        for instance in &mut instances {
            if let Some(directives) = pair.zone.directives(now, instance.stream) {
                instance
                    .subscription
                    .on_directives(now, directives)
                    .unwrap();
            }
            if let Some(flood) = &setting.flood {
                instance.flood(flood);
            }
        }
        if step == 100 {
            for instance in &instances {
                tasks.extend(
                    (0..setting.jobs)
                        .map(|_| start(instance.limiter.clone(), instance.key(JOBS), job)),
                );
            }
        }
        if step == settled {
            before = instances.iter().map(Instance::counts).collect();
        }
        sleep(STEP).await;
    }
    tasks.into_iter().for_each(|task| task.abort());
    let after: Vec<[u64; 4]> = instances.iter().map(Instance::counts).collect();
    let since = |at: usize| -> Vec<u64> {
        after
            .iter()
            .zip(&before)
            .map(|(a, b)| a[at] - b[at])
            .collect()
    };
    let sum = |at: usize| since(at).iter().sum();
    Outcome {
        seconds,
        attempts: sum(0),
        admitted: since(1),
        beside: [sum(2), sum(3)],
    }
}

fn alone(limit: f64) -> Setting {
    Setting {
        limit,
        instances: 1,
        jobs: 1,
        flood: None,
        possible: 1.0,
    }
}

#[tokio::test(start_paused = true)]
async fn sleeping_job_gets_a_fraction_of_capacity() {
    let web = |rps| Some(Flood { tenant: "web", rps });
    for (setting, name) in [
        (alone(10.0), "alone at 10/s"),
        (alone(100.0), "alone at 100/s"),
        (alone(500.0), "alone at 500/s"),
        (
            Setting {
                flood: web(500.0),
                possible: 0.5,
                ..alone(100.0)
            },
            "beside five times the limit of 100/s",
        ),
        (
            Setting {
                flood: web(5_000.0),
                possible: 0.5,
                ..alone(1_000.0)
            },
            "beside five times the limit of 1,000/s",
        ),
    ] {
        let outcome = run(&setting, Job::Sleeps).await;
        println!("sleeps {name}: {outcome:?}");
        assert!(
            outcome.all() as f64 <= 0.8 * 1_000.0 * setting.possible,
            "{name}: {outcome:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_jobs_get_capacity_with_few_attempts() {
    let web = |rps| Some(Flood { tenant: "web", rps });
    for (setting, name) in [
        (alone(2.0), "alone at 2/s"),
        (alone(10.0), "alone at 10/s"),
        (alone(50.0), "alone at 50/s"),
        (
            Setting {
                jobs: 4,
                ..alone(200.0)
            },
            "four jobs at 200/s",
        ),
        (
            Setting {
                instances: 5,
                ..alone(20.0)
            },
            "a job at each of five instances",
        ),
        (
            Setting {
                flood: web(100.0),
                possible: 0.5,
                ..alone(20.0)
            },
            "beside five times the limit",
        ),
        (
            Setting {
                flood: web(500.0),
                possible: 0.5,
                ..alone(100.0)
            },
            "beside five times the limit of 100/s",
        ),
    ] {
        let outcome = run(&setting, Job::Waits).await;
        println!("{name}: {outcome:?}");
        let possible = 1_000.0 * setting.possible;
        let all = outcome.all() as f64;
        assert!(
            all >= 0.9 * possible && all <= 1.1 * possible,
            "{name}: {outcome:?}"
        );
        for admitted in &outcome.admitted {
            let share = possible / setting.instances as f64;
            assert!(
                (*admitted as f64) >= 0.5 * share,
                "{name}: no instance starves: {outcome:?}"
            );
        }
        let floor = 4.0 * outcome.seconds * setting.instances as f64;
        assert!(
            (outcome.attempts as f64) <= 1.5 * all + floor,
            "{name}: {outcome:?}"
        );
    }
}

/// A job next to requests of the same tenant that do not wait: each of its attempts passes like any
/// other request.
#[tokio::test(start_paused = true)]
async fn own_flood_starves_jobs_like_the_coin() {
    for factor in [2.0, 10.0] {
        let flood = Some(Flood {
            tenant: "batch",
            rps: factor * 50.0,
        });
        let setting = Setting {
            flood,
            ..alone(50.0)
        };
        let outcome = run(&setting, Job::Waits).await;
        println!("beside {factor} times the limit of the own tenant: {outcome:?}");
        assert!(outcome.attempts >= 4 * 20, "{outcome:?}");
        let [offered, admitted] = outcome.beside.map(|count| count as f64);
        let (passes, of_jobs) = (
            admitted / offered,
            outcome.all() as f64 / outcome.attempts as f64,
        );
        assert!(
            of_jobs >= 0.7 * passes,
            "{of_jobs} of the attempts, {passes} of the others: {outcome:?}"
        );
    }
}
