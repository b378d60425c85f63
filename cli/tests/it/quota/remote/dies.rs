//! A quota server that is killed or hangs: the policies of the quotas apply, no request waits for
//! it, and when it returns it decides again, with its old balances.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_client::{QuotaStore, Reason, Verdict};
use plimsoll_testing::process::{FREE_PORT, Process, until, until_true};
use plimsoll_testing::quota_crashes::connect;
use plimsoll_testing::turns::turn;
use tokio::runtime::Runtime;

use super::{Instance, fleet, left_at};

const MAX: u64 = 1_000;
const CALLERS: u64 = 16;
/// Maximum admissions of an instance in an hour without the store: a hundredth of the quota.
const BOUNDED: usize = 10;
const QUOTAS: [(&str, &str); 4] = [
    (
        "counted",
        "max: 1000, every: 1h, lease: 1, on_store_error: deny",
    ),
    (
        "denied",
        "max: 1000, every: 1h, lease: 1, on_store_error: deny",
    ),
    (
        "allowed",
        "max: 1000, every: 1h, lease: 1, on_store_error: allow",
    ),
    (
        "bounded",
        "max: 1000, every: 1h, lease: 1, on_store_error: allow_bounded",
    ),
];
const BUCKETS: [&str; 4] = ["counted", "denied", "allowed", "bounded"];

fn server(data: &Path, listen: &str) -> Process {
    let data = data.display().to_string();
    let flags = ["quota", "--durability", "always", "--data", &data];
    let ports = ["--listen", listen, "--admin", FREE_PORT];
    Process::start(&[&flags[..], &ports].concat())
}

fn left(server: &Process, bucket: &str) -> u64 {
    left_at(&mut connect(server.address("listen")), bucket, MAX)
}

fn is_up(instance: &Instance) -> bool {
    instance.metric("plimsoll_quota_store_up") == 1.0
}

/// Checks that the policy decides every request within its call, without a wait.
fn assert_policies_apply_at_once(instance: &Instance) {
    let admitted = |bucket: &str| {
        let admitted = (0..50).filter(|_| match instance.decide_now(bucket).unwrap().verdict {
            Verdict::Admit => true,
            Verdict::Refuse(refusal) => {
                assert_eq!(refusal.reason(), Reason::QuotaDegraded);
                false
            }
        });
        admitted.count()
    };
    assert_eq!(
        ["denied", "allowed", "bounded"].map(admitted),
        [0, 50, BOUNDED]
    );
}

#[test]
fn killed_quota_server_returns_with_its_balances() {
    let _turn = turn(1_000);
    let (runtime, data) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let mut store = server(data.path(), FREE_PORT);
    let listen = store.address("listen").to_string();
    let fleet = fleet(&QUOTAS);
    let config = QuotaStore::new(&format!("plimsoll://{listen}"))
        .unwrap()
        .timeout(Duration::from_secs(1));
    let instance = Instance::start(&runtime, &fleet, config, &BUCKETS);
    let (granted, lost, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            let (instance, runtime, granted, lost, is_over) =
                (&instance, &runtime, &granted, &lost, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match runtime.block_on(instance.decide("counted")).verdict {
                        Verdict::Admit => granted.fetch_add(1, Ordering::Relaxed),
                        Verdict::Refuse(refusal) if refusal.reason() == Reason::QuotaDegraded => {
                            // The store may have debited a request that it did not answer.
                            lost.fetch_add(1, Ordering::Relaxed)
                        }
                        Verdict::Refuse(_) => return,
                    };
                }
            });
        }
        until_true("grants before the kill", || {
            granted.load(Ordering::Relaxed) >= 100
        });
        store.kill_9();
        until_true("the breaker to open", || !is_up(&instance));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_policies_apply_at_once(&instance);
    let granted = granted.load(Ordering::Relaxed);
    let until_down = |clients: u64| {
        until("the controller to know it", || {
            (fleet.status()?["quota_store_down"] == clients).then_some(())
        });
    };
    until_down(1);

    store = server(data.path(), &listen);
    until_true("the store to decide again", || is_up(&instance));
    until_down(0);
    let had = left(&store, "counted");
    assert!(
        had <= MAX - granted,
        "{had} tokens are left after {granted} were granted"
    );
    assert!(
        had >= (MAX - granted).saturating_sub(CALLERS),
        "{had} tokens are left after {granted} were granted"
    );
    // On a busy machine an answer may come too late, with or without its token.
    let (mut more, mut unanswered) = (0, 0);
    loop {
        match runtime.block_on(instance.decide("counted")).verdict {
            Verdict::Admit => more += 1,
            Verdict::Refuse(refusal) if refusal.reason() == Reason::QuotaDegraded => {
                unanswered += 1;
            }
            Verdict::Refuse(_) => break,
        }
    }
    assert!(
        more <= had && more + unanswered >= had,
        "{more} more and {unanswered} without an answer, of {had}"
    );
    runtime.block_on(instance.feed.shutdown());
}

#[test]
fn hanging_quota_server_respects_the_deadline() {
    let _turn = turn(1_000);
    let (runtime, data) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let store = server(data.path(), FREE_PORT);
    let fleet = fleet(&QUOTAS);
    let config = QuotaStore::new(&format!("plimsoll://{}", store.address("listen"))).unwrap();
    let instance = Instance::start(
        &runtime,
        &fleet,
        config.timeout(Duration::from_millis(300)),
        &BUCKETS,
    );
    until_true("the first grant", || {
        runtime
            .block_on(instance.decide("counted"))
            .verdict
            .is_admit()
    });
    let before = left(&store, "counted");
    store.signal("STOP");
    // Each ends, although the server answers none of them.
    let mut asked = 0;
    until_true("the breaker to open", || {
        let decided = runtime.block_on(instance.decide("denied"));
        assert!(!decided.verdict.is_admit());
        asked += 1;
        !is_up(&instance)
    });
    assert_policies_apply_at_once(&instance);
    store.signal("CONT");
    until_true("the store to decide again", || is_up(&instance));
    until_true("a grant", || {
        asked += 1;
        runtime
            .block_on(instance.decide("denied"))
            .verdict
            .is_admit()
    });
    assert_eq!(left(&store, "counted"), before);
    // Late debits for abandoned requests may be lost, and are never granted.
    let denied = left(&store, "denied");
    assert!(
        (MAX - asked..MAX).contains(&denied),
        "{denied} tokens are left"
    );
    runtime.block_on(instance.feed.shutdown());
}
