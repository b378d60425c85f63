//! Real Redis: single and Cluster. Takes are exact, a killed server opens the breaker, and recovery is automatic.

use std::sync::atomic::{AtomicU64, Ordering};

use super::servers::Server;
use super::*;
use crate::limiter::quota::QuotaStore;

/// A generous deadline, because these tests share few processors.
const PATIENT: Duration = Duration::from_secs(2);

fn connect(url: &str, timeout: Duration) -> Quotas {
    Quotas::new(&QuotaStore::new(url).unwrap().timeout(timeout)).unwrap()
}

/// Takes by 64 concurrent callers of several instances until each was refused, then until `all` are granted or much time has
/// passed, and once more. Returns the requests granted.
async fn granted_to_64(instances: &[Quotas], of: &[Arc<Quota>], tenant: &str, all: u64) -> u64 {
    let granted = Arc::new(AtomicU64::new(0));
    let callers = (0..64).map(|caller| {
        let (quotas, of) = (instances[caller % instances.len()].clone(), of.to_vec());
        let (granted, tenant) = (Arc::clone(&granted), tenant.to_owned());
        tokio::spawn(async move {
            loop {
                match take(&quotas, &of, &tenant, 1).await {
                    Exact::Granted => granted.fetch_add(1, Ordering::Relaxed),
                    Exact::Refused { reason, .. } => {
                        return assert_eq!(reason, Reason::TenantQuotaExceeded);
                    }
                };
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let mut granted = granted.load(Ordering::Relaxed);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    // A call ahead of need may have had the last tokens while the callers were refused.
    loop {
        let is_last = granted >= all || tokio::time::Instant::now() >= deadline;
        for quotas in instances {
            granted += u64::from(take(quotas, of, tenant, 1).await == Exact::Granted);
        }
        if is_last {
            return granted;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_up(quotas: &Quotas, of: &[Arc<Quota>], tenant: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !quotas.counters().is_up || refusal(take(quotas, of, tenant, 1).await).is_some() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{:?}",
            quotas.counters()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_open(quotas: &Quotas, tenant: &str) {
    let of = [hourly_or("opens", 1_000, 1, OnStoreError::Allow)];
    while quotas.counters().is_up {
        assert_eq!(take(quotas, &of, tenant, 1).await, Exact::Granted);
    }
}

fn assert_policies_apply_at_once(quotas: &Quotas, tenant: &str) {
    let admitted = |policy, name: &str| {
        let of = [hourly_or(name, 1_000, 1, policy)];
        let asked = [Asked {
            quotas: &of,
            tenant,
            cost: 1,
        }];
        let admitted = (0..50).filter(|_| match quotas.take(&asked, true) {
            Taking::Ready(exact) => exact == Exact::Granted,
            Taking::Asking(_) => panic!("a request waits for a store that does not answer"),
        });
        admitted.count()
    };
    assert_eq!(admitted(OnStoreError::Allow, "allow"), 50);
    assert_eq!(admitted(OnStoreError::Deny, "deny"), 0);
    assert_eq!(admitted(OnStoreError::AllowBounded, "bounded"), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_redis_grants_64_callers_exactly() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    for (name, lease) in [("each", 1), ("leased", 50)] {
        let instances: Vec<Quotas> = (0..if lease == 1 { 3 } else { 1 })
            .map(|_| connect(&url, PATIENT))
            .collect();
        let of = [hourly(name, 3_000, lease), hourly("month", 100_000, lease)];
        assert_eq!(
            granted_to_64(&instances, &of, "acme", 3_000).await,
            3_000,
            "lease {lease}"
        );
        for quotas in &instances {
            quotas.close(PATIENT).await;
        }
    }
    let taken: Vec<Option<u64>> = server
        .run("HMGET plimsoll:{acme}:month:100000:100000:3600000 t")
        .unwrap();
    assert_eq!(
        taken,
        [Some(100_000 - 6_000)],
        "the other quota was debited as often, and leases returned"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaker_opens_for_killed_redis_then_closes() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let quotas = connect(
        &format!("redis://127.0.0.1:{}", server.port),
        Duration::from_millis(200),
    );
    let of = [hourly_or("calls", 1_000, 1, OnStoreError::Deny)];
    quotas.warm();
    until_up(&quotas, &of, "acme").await;
    server.kill();
    until_open(&quotas, "acme").await;
    assert_policies_apply_at_once(&quotas, "acme");
    // It returns without its scripts, which are sent again.
    server.restart();
    until_up(&quotas, &of, "acme").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_cluster_node_affects_its_keys() {
    let nodes: Option<Vec<Server>> = (0..3)
        .map(|_| {
            Server::start(&[
                "--cluster-enabled",
                "yes",
                "--cluster-require-full-coverage",
                "no",
                "--cluster-node-timeout",
                "2000",
            ])
        })
        .collect();
    let Some(mut nodes) = nodes else { return };
    for (at, node) in nodes.iter().enumerate() {
        let (from, to) = (at * 16_384 / 3, (at + 1) * 16_384 / 3 - 1);
        node.run::<String>(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"))
            .unwrap();
        node.run::<String>(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port))
            .unwrap();
    }
    let is_ok = |node: &Server| {
        let info = node.run::<String>("CLUSTER INFO").unwrap();
        info.contains("cluster_state:ok")
            && info.contains("cluster_known_nodes:3")
            && info.contains("cluster_slots_ok:16384")
    };
    while !nodes.iter().all(is_ok) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        nodes[0].port, nodes[1].port
    );
    let quotas = connect(&url, PATIENT);
    // A tenant of each node.
    let node_of = |tenant: &str| {
        let slot: usize = nodes[0]
            .run(&format!("CLUSTER KEYSLOT {{{tenant}}}"))
            .unwrap();
        (0..3).find(|at| slot < (at + 1) * 16_384 / 3).unwrap()
    };
    let mut tenants: [Option<String>; 3] = [const { None }; 3];
    for name in (0..100).map(|number| format!("tenant-{number}")) {
        tenants[node_of(&name)].get_or_insert(name);
    }
    let tenants = tenants.map(Option::unwrap);
    let of = [hourly("calls", 600, 1), hourly("month", 10_000, 1)];
    for tenant in &tenants {
        let instances = [quotas.clone(), connect(&url, PATIENT)];
        assert_eq!(
            granted_to_64(&instances, &of, tenant, 600).await,
            600,
            "{tenant}"
        );
    }
    // Keys of several nodes: in sequence, and what was taken returns if a later one refuses.
    let of = [hourly("several", 5, 1)];
    let first = asked(&of, &tenants[0], 1);
    let both = [first, asked(&of, &tenants[1], 2)];
    let mut granted = 0;
    for _ in 0..5 {
        granted += u64::from(settled(quotas.take(&both, true)).await == Exact::Granted);
    }
    assert_eq!(granted, 2);
    let key = format!("HGET plimsoll:{{{}}}:several:5:5:3600000 t", tenants[0]);
    while nodes[0].run::<u64>(&key).unwrap() != 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let quick = connect(&url, Duration::from_millis(300));
    let of = [hourly_or("after", 1_000, 1, OnStoreError::Deny)];
    for tenant in &tenants {
        until_up(&quick, &of, tenant).await;
    }
    nodes[2].kill();
    let took = take(&quick, &of, &tenants[2], 1).await;
    assert!(
        matches!(
            took,
            Exact::Refused {
                reason: Reason::QuotaDegraded,
                ..
            }
        ),
        "{took:?}"
    );
    for tenant in &tenants[..2] {
        let took = take(&quick, &of, tenant, 1).await;
        assert_eq!(
            took,
            Exact::Granted,
            "the other nodes serve: {:?}",
            quick.counters()
        );
    }
    nodes[2].restart();
    until_up(&quick, &of, &tenants[2]).await;
}
