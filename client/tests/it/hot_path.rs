//! The cost of a decision that no clock shows: instructions, counted by valgrind, and system calls, traced by
//! strace. Both run this test binary as a child, with the one test [`decisions`].

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_client::internals::Subscription;
use plimsoll_client::{Limiter, Request, TraceId};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::InstanceId;

use crate::parent::{at_ratio, identity};

/// Instructions of one decision in the profile of tests. The test fails when a decision differs by more than
/// [`TOLERANCE`]; a cheaper one needs a new figure here.
const INSTRUCTIONS: [(&str, f64); 7] = [
    ("by-handle-plain", 82.0),
    ("by-handle-guarded", 213.0),
    ("by-handle-coherent", 422.0),
    ("by-tenant-plain", 146.0),
    ("by-tenant-guarded", 278.0),
    ("by-names-plain", 255.0),
    ("by-two-keys-plain", 224.0),
];
const TOLERANCE: f64 = 1.2;

const TASK: &str = "HOT_PATH_TASK";
const TIMES: &str = "HOT_PATH_TIMES";
/// Files that do not exist: the attempt to open one marks the begin and the end of decisions in a trace.
const BEGIN: &str = "/proc/decisions-begin";
const END: &str = "/proc/decisions-end";

fn directives(epoch: u64, seq: u64, ratio: u32) -> Directives {
    // Every epoch has another salt, so that draw keys change during decisions.
    let coherence = Coherence {
        key: CoinKey::from_bytes([7; 16]),
        salt: epoch,
    };
    let bucket = |(name, coin, guard): (&str, Coin, Option<f64>)| BucketDirective {
        bucket: Bucket::new(name).unwrap(),
        whole: true,
        terms: Terms {
            limit: Limit::PerSecond(Rate::new(1000.0).unwrap()),
            mode: Mode::Enforce,
            coin,
            coherence: (name == "coherent").then_some(coherence),
            clients: Some(1),
            ..Terms::default()
        },
        keys: vec![KeyDirective {
            tenant: Tenant::default_class(),
            values: Values {
                guard: guard.map(|guard| Rate::new(guard).unwrap()),
                ..at_ratio(ratio)
            },
        }],
    };
    let buckets = [
        ("plain", Coin::Coherent, None),
        ("guarded", Coin::Dithered, Some(1e12)),
        ("coherent", Coin::Coherent, None),
    ];
    Directives {
        lead: Epoch(epoch).into(),
        seq,
        parent: (seq == 1).then_some(InstanceId(2)),
        buckets: buckets.map(bucket).into(),
        ..Directives::default()
    }
}

fn limiter() -> (Limiter, Subscription) {
    let (limiter, mut subscription) = Limiter::without_transport(identity(), 10_000, 4, 7);
    for bucket in BUCKETS {
        limiter.bucket(bucket).unwrap();
    }
    subscription.on_open(MonoTime::ZERO);
    subscription.report(MonoTime::ZERO);
    subscription
        .on_directives(MonoTime::ZERO, directives(1, 1, DropRatio::ONE / 2))
        .unwrap();
    (limiter, subscription)
}

const BUCKETS: [&str; 3] = ["plain", "guarded", "coherent"];

fn decide(limiter: &Limiter, way: &str, times: usize) -> usize {
    let name = BUCKETS
        .into_iter()
        .find(|bucket| way.ends_with(bucket))
        .unwrap();
    let bucket = limiter.bucket(name).unwrap();
    let key = bucket.key("acme");
    let fresh: Vec<String> = match way {
        "fresh-names-guarded" => (0..times).map(|n| format!("tenant-{n}")).collect(),
        _ => Vec::new(),
    };
    // The first decision of a thread takes its slot.
    let first = usize::from(key.check().is_admit());
    let _ = std::fs::metadata(BEGIN);
    let admitted = match way {
        "by-handle-plain" | "by-handle-guarded" => (0..times)
            .filter(|_| limiter.check(&key.request()).is_admit())
            .count(),
        "by-handle-coherent" => {
            let trace = |n: &usize| TraceId::new(*n as u128 + 1);
            (0..times)
                .filter(|n| limiter.check(&key.request().trace(trace(n))).is_admit())
                .count()
        }
        "by-tenant-plain" | "by-tenant-guarded" => (0..times)
            .filter(|_| {
                limiter
                    .check(&Request::new(&bucket, "orders/tenant_1234"))
                    .is_admit()
            })
            .count(),
        "by-names-plain" => (0..times)
            .filter(|_| limiter.check(&Request::new(name, "acme")).is_admit())
            .count(),
        "by-two-keys-plain" => {
            // Each request is counted for both keys, so half as many.
            let both = [Request::new(&bucket, "acme"), Request::new(&bucket, "jo")];
            2 * (0..times / 2)
                .filter(|_| limiter.check(&Request::all(&both)).is_admit())
                .count()
        }
        "fresh-names-guarded" => fresh
            .iter()
            .filter(|tenant| limiter.check(&Request::new(&bucket, tenant)).is_admit())
            .count(),
        _ => panic!("unknown way {way}"),
    };
    let _ = std::fs::metadata(END);
    first + admitted
}

fn exchange_messages(mut subscription: Subscription, over: &AtomicBool) -> Subscription {
    let mut now = MonoTime::ZERO;
    let (mut epoch, mut seq) = (1, 1);
    while !over.load(Ordering::Relaxed) {
        now = now + std::time::Duration::from_millis(10);
        seq += 1;
        if seq == 20 {
            (epoch, seq) = (epoch + 1, 1);
            subscription.on_open(now);
        }
        subscription.report(now);
        let ratio = DropRatio::ONE / 2 + (seq as u32 % 3) * (DropRatio::ONE / 8);
        subscription
            .on_directives(now, directives(epoch, seq, ratio))
            .unwrap();
        subscription.on_tick(now);
    }
    subscription
}

/// Every decision is counted once, in every way to decide and under concurrent messages. As a child, makes
/// the decisions that the tools trace.
#[test]
fn decisions() {
    if let Some(way) = std::env::var_os(TASK) {
        let way = way.to_str().unwrap();
        let times: usize = std::env::var(TIMES).unwrap().parse().unwrap();
        let (limiter, subscription) = limiter();
        let over = AtomicBool::new(way.starts_with("by-"));
        std::thread::scope(|scope| {
            scope.spawn(|| exchange_messages(subscription, &over));
            decide(&limiter, way, times);
            over.store(true, Ordering::Relaxed);
        });
        return;
    }
    let times = 20_000;
    for way in INSTRUCTIONS
        .iter()
        .map(|(way, _)| *way)
        .chain(["fresh-names-guarded"])
    {
        let (limiter, subscription) = limiter();
        let over = AtomicBool::new(false);
        let (admitted, mut subscription) = std::thread::scope(|scope| {
            let other = scope.spawn(|| exchange_messages(subscription, &over));
            let admitted = decide(&limiter, way, times);
            over.store(true, Ordering::Relaxed);
            (admitted, other.join().unwrap())
        });
        let counts = subscription
            .counts()
            .into_values()
            .fold(Default::default(), plimsoll_core::report::Counts::plus);
        assert_eq!(
            (counts.offered, counts.admitted()),
            (times as u64 + 1, admitted as u64),
            "{way}"
        );
        assert!(
            (1..times).contains(&admitted),
            "{admitted} of {times} admitted {way}"
        );
    }
}

/// Runs [`decisions`] under a tool; returns `None`, and notes the skipped test, when the tool is not
/// installed.
fn watched(tool: &str, arguments: &[&str], way: &str, times: usize) -> Option<()> {
    let me = std::env::current_exe().unwrap();
    let run = Command::new(tool)
        .args(arguments)
        .arg(me)
        .args(["--exact", "hot_path::decisions", "--test-threads", "1"])
        .envs([(TASK, way), (TIMES, &times.to_string())])
        .output();
    match run {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {way}: {text}");
            Some(())
        }
        Err(missing) => {
            if let Some(skipped) = std::env::var_os("PLIMSOLL_SKIPPED") {
                use std::io::Write;
                let mut file = std::fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(skipped)
                    .unwrap();
                writeln!(
                    file,
                    "hot_path::{tool}: {missing}; install the package `{tool}`"
                )
                .unwrap();
            }
            None
        }
    }
}

/// Returns the instructions of a run of `times` decisions, by callgrind's total.
fn instructions(folder: &Path, way: &str, times: usize) -> Option<f64> {
    let out = folder.join(format!("{way}-{times}"));
    let file = format!("--callgrind-out-file={}", out.display());
    watched("valgrind", &["--tool=callgrind", &file], way, times)?;
    let profile = std::fs::read_to_string(out).unwrap();
    let total = profile.lines().find_map(|line| {
        line.strip_prefix("summary: ")
            .or(line.strip_prefix("totals: "))
    });
    Some(total.unwrap().trim().parse().unwrap())
}

#[test]
fn decision_takes_the_recorded_number_of_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = BTreeMap::new();
    for (way, _) in INSTRUCTIONS {
        let (few, many) = (10_000, 60_000);
        let Some(of_few) = instructions(folder.path(), way, few) else {
            return;
        };
        let Some(of_many) = instructions(folder.path(), way, many) else {
            return;
        };
        found.insert(way, (of_many - of_few) / (many - few) as f64);
    }
    for (way, expected) in INSTRUCTIONS {
        let got = found[way];
        assert!(
            got <= expected * TOLERANCE,
            "{way}: {got:.1} instructions, {expected} before; all: {found:.1?}"
        );
        // A figure that is too high would hide the next regressions.
        assert!(
            got >= expected / TOLERANCE,
            "{way}: only {got:.1} instructions: lower the figure of {expected}; all: {found:.1?}"
        );
    }
}

#[test]
fn decision_makes_no_system_call() {
    let folder = tempfile::tempdir().unwrap();
    for way in [
        "by-handle-guarded",
        "by-handle-coherent",
        "by-tenant-guarded",
        "fresh-names-guarded",
    ] {
        let trace = folder.path().join(way);
        let out = trace.display().to_string();
        if watched("strace", &["-f", "-o", &out], way, 100_000).is_none() {
            return;
        }
        let trace = std::fs::read_to_string(trace).unwrap();
        let begins = trace.lines().find(|line| line.contains(BEGIN)).unwrap();
        let thread = begins.split_whitespace().next().unwrap();
        let of_thread = trace
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(thread));
        let after = of_thread.skip_while(|line| !line.contains(BEGIN)).skip(1);
        // A call that another thread interrupts takes a second line in the trace.
        let begun = after.filter(|line| !line.contains("resumed>"));
        let calls: Vec<_> = begun.take_while(|line| !line.contains(END)).collect();
        assert!(calls.is_empty(), "{way}: {calls:#?}");
        assert!(trace.contains(END), "the decisions completed");
    }
}
