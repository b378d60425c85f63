//! Sidecars that start and stop while a quota is used up: no start admits a request without its token.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::super::process::Server;
use super::{TENANT, fleet};
use crate::process::{Process, http, until};
use crate::turns::turn;

const MAX: u64 = 5_000;
const CALLERS: usize = 4;
/// The refusals in turn after which a caller takes the quota as used up.
const REFUSED: usize = 30;
const FREE: [&str; 3] = ["127.0.0.1:0"; 3];

/// Asks a sidecar; `None` while it is away.
fn is_admitted(sidecar: SocketAddr) -> Option<bool> {
    let headers = [("x-tenant", TENANT), ("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
    Some(http(sidecar, "GET", "/check", &headers).ok()?.0 == 200)
}

#[test]
fn starts_admit_no_more_than_the_quota() {
    let _turn = turn(2_000);
    let server = Server::start();
    let fleet = fleet(&[("api", &format!("max: {MAX}, every: 1d, lease: 10, on_store_error: deny"))]);
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "http: { tenant: { header: x-tenant }, rules: [ { bucket: api } ] }\n").unwrap();
    let rules = rules.display().to_string();
    let aggregator = format!("http://{}", fleet.zones[0].aggregator.address("listen"));
    let store = format!("plimsoll://{}", server.address());
    let start = |[rls, http, admin]: [&str; 3]| {
        let flags = ["sidecar", "--zone", "zone-a", "--aggregator", &aggregator, "--no-sockets"];
        let quotas = ["--rules", &rules, "--quota-store", &store, "--quota-timeout", "5s"];
        Process::start(&[&flags[..], &quotas, &["--rls", rls, "--http", http, "--admin", admin]].concat())
    };
    let (mut warm, mut restarted) = (start(FREE), start(FREE));
    let sidecars = Mutex::new(vec![warm.address("http"), restarted.address("http")]);
    let (granted, have_started) = (AtomicU64::new(0), AtomicBool::new(false));
    let call = |caller: usize| {
        let mut refused = 0;
        for at in caller.. {
            let sidecar = {
                let sidecars = sidecars.lock().unwrap();
                sidecars[at % sidecars.len()]
            };
            match is_admitted(sidecar) {
                Some(true) => {
                    granted.fetch_add(1, Ordering::Relaxed);
                    refused = 0;
                }
                _ if have_started.load(Ordering::Relaxed) => refused += 1,
                _ => {}
            }
            if refused >= REFUSED {
                return;
            }
        }
    };
    let mut fresh = thread::scope(|scope| {
        (0..CALLERS).for_each(|caller| {
            drop(scope.spawn({
                let call = &call;
                move || call(caller)
            }))
        });
        until("some requests", || (granted.load(Ordering::Relaxed) > MAX / 20).then_some(()));
        let addresses = ["listen", "http", "admin"].map(|name| restarted.address(name).to_string());
        assert!(restarted.terminate().success());
        restarted = start(addresses.each_ref().map(String::as_str));
        let fresh = start(FREE);
        sidecars.lock().unwrap().push(fresh.address("http"));
        have_started.store(true, Ordering::Relaxed);
        fresh
    });
    for sidecar in [&mut warm, &mut restarted, &mut fresh] {
        assert!(sidecar.terminate().success());
    }
    let mut ask = redis::cmd("QUOTA.TAKE");
    ask.arg(format!("{{{TENANT}}}:of_api")).arg(&[MAX, MAX, 86_400_000, 0, 0]);
    let rows: Vec<Vec<i64>> = ask.query(&mut server.connect("")).unwrap();
    let (granted, left) = (granted.into_inner(), u64::try_from(rows[0][1]).unwrap());
    assert_eq!(granted + left, MAX, "{granted} admitted, {left} left");
}
