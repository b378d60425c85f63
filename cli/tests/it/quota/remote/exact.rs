//! Exactness over the network: never a token more than the quota, by many callers, instances and
//! leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_client::{QuotaStore, Reason, Verdict};
use plimsoll_testing::process::{FREE_PORT, succeed, until_true};
use plimsoll_testing::turns::turn;
use tokio::runtime::Runtime;

use super::super::server::Server;
use super::{Instance, PATIENT, Redis, TENANT, fleet, left_at, operations};

const MAX: u64 = 600;
const CALLERS: usize = 64;
const QUOTAS: [(&str, &str); 2] = [
    (
        "each",
        "max: 600, every: 1h, lease: 1, on_store_error: deny",
    ),
    (
        "leased",
        "max: 600, every: 1h, lease: 10, on_store_error: deny",
    ),
];

/// Decides by concurrent callers of several instances, each until its quota has refused it or it
/// has had `most`, and returns the requests granted.
fn granted(runtime: &Runtime, instances: &[Arc<Instance>], bucket: &'static str, most: u64) -> u64 {
    let granted = Arc::new(AtomicU64::new(0));
    let callers = (0..CALLERS).map(|caller| {
        let (instance, granted) = (
            Arc::clone(&instances[caller % instances.len()]),
            Arc::clone(&granted),
        );
        runtime.spawn(async move {
            let mut own = 0;
            while own < most {
                match instance.decide(bucket).await.verdict {
                    Verdict::Admit => own += 1,
                    // A client that has just joined has the tokens of a few requests.
                    Verdict::Refuse(refusal) if refusal.reason() == Reason::BurstGuard => {
                        tokio::task::yield_now().await;
                    }
                    Verdict::Refuse(refusal) => {
                        assert_eq!(refusal.reason(), Reason::TenantQuotaExceeded);
                        break;
                    }
                }
            }
            granted.fetch_add(own, Ordering::Relaxed);
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        runtime.block_on(caller).unwrap();
    }
    granted.load(Ordering::Relaxed)
}

fn shut_down(runtime: &Runtime, instances: Vec<Arc<Instance>>) {
    for instance in instances {
        let instance = Arc::into_inner(instance).unwrap();
        runtime.block_on(instance.feed.shutdown());
    }
}

/// Lets callers use a quota up by instances that start and stop. `left` returns the store's tokens.
fn use_up(store: &QuotaStore, left: impl Fn(&str) -> u64) {
    let runtime = Runtime::new().unwrap();
    let fleet = fleet(&QUOTAS);
    let start = || {
        Arc::new(Instance::start(
            &runtime,
            &fleet,
            store.clone(),
            &["each", "leased"],
        ))
    };

    let both = vec![start(), start()];
    assert_eq!(granted(&runtime, &both, "each", u64::MAX), MAX);
    assert_eq!(left("each"), 0);
    shut_down(&runtime, both);

    // The first instance has a lease when it ends, which the second gets.
    let first = start();
    let mut taken = granted(&runtime, std::slice::from_ref(&first), "leased", 5);
    assert_eq!(taken, 5 * CALLERS as u64);
    until_true("a lease", || {
        assert!(runtime.block_on(first.decide("leased")).verdict.is_admit());
        taken += 1;
        first.metric("plimsoll_quota_leased_tokens") > 0.0
    });
    shut_down(&runtime, vec![first]);
    until_true("leases to be given back", || left("leased") == MAX - taken);
    let second = vec![start()];
    assert_eq!(taken + granted(&runtime, &second, "leased", u64::MAX), MAX);
    until_true("surplus tokens to be given back", || left("leased") == 0);
    shut_down(&runtime, second);
}

#[test]
fn quota_server_grants_64_callers_exactly() {
    let _turn = turn(2_000);
    // With the token of a service, which gives back only its own takes.
    let place = tempfile::tempdir().unwrap();
    let [tokens, secret] =
        ["tokens", "secret"].map(|name| place.path().join(name).display().to_string());
    let rights = format!("quota:take,give:{{{TENANT}}}:");
    let add = [
        "tokens", "add", "shop", "--role", "viewer", "--rights", &rights, "--file", &tokens,
        "--out", &secret,
    ];
    succeed(&add);
    let memory = ["--listen", FREE_PORT, "--durability", "none"];
    let server = Server::start_with(&[&memory[..], &["--tokens", &tokens]].concat());
    let store = QuotaStore::new(&format!("plimsoll://{}", server.address())).unwrap();
    let store = store.password_file(&secret).timeout(PATIENT);
    use_up(&store, |bucket| {
        left_at(&mut server.connect(""), bucket, MAX)
    });
    assert!(operations(&server.process, "give") >= 1.0);
}

#[test]
fn redis_grants_64_callers_exactly() {
    let _turn = turn(2_000);
    let test = "redis_grants_64_callers_exactly";
    let Some(redis) = Redis::start(test, &[]) else {
        return;
    };
    let store = QuotaStore::new(&format!("redis://{}", redis.address))
        .unwrap()
        .timeout(PATIENT);
    use_up(&store, |bucket| {
        let mut ask = redis::cmd("HGET");
        ask.arg(format!(
            "plimsoll:{{{TENANT}}}:of_{bucket}:{MAX}:{MAX}:3600000"
        ))
        .arg("t");
        ask.query::<Option<u64>>(&mut redis.connect(""))
            .unwrap()
            .unwrap_or(MAX)
    });
}
