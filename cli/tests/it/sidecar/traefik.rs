//! Traefik with the shipped configuration.

use std::path::Path;
use std::process::Command;

use plimsoll_testing::process::{Process, until_true};
use plimsoll_testing::turns::turn;

use super::proxy::{Caller, Fields, OFFERED, Setting, assert_body_of_sidecar, policy, refusal};
use super::{filled, tool};

const RULES: &str = "http: { tenant: { header: x-tenant } }\n";

fn start(setting: &Setting, traefik: &Path, bound: &[(&str, &str)]) -> Process {
    let [sidecar, app] =
        [setting.sidecar(), setting.backend.address].map(|address| address.to_string());
    let replaced = [("127.0.0.1:7421", &*sidecar), ("127.0.0.1:8080", &app)];
    let file = setting.write(
        "traefik.yaml",
        &filled("traefik.yaml", &[&replaced, bound].concat()),
    );
    let mut check = Command::new(traefik);
    check.arg("version");
    let mut command = Command::new(traefik);
    command.arg(format!("--entrypoints.web.address={}", setting.address));
    command.arg(format!("--providers.file.filename={}", file.display()));
    command.args([
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
    ]);
    let proxy = setting.run(check, command);
    let caller = Caller::new(setting.address);
    until_true("the route", || caller.get("/", &[]).status == 200);
    proxy
}

#[test]
fn requests_and_refusals_pass_through_traefik() {
    let Some(traefik) = tool(
        "traefik::requests_and_refusals_pass_through_traefik",
        "traefik",
    ) else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut setting = Setting::with_rules("buckets: {}\n", Some(RULES));
    let _proxy = start(&setting, &traefik, &[]);
    let caller = Caller::new(setting.address);
    let fields: Fields<'_> = &[
        ("x-plimsoll-bucket", "spoofed-bucket"),
        ("x-plimsoll-cost", "7"),
        ("x-plimsoll-shadow", "spoofed"),
        ("x-tenant", "acme"),
        ("content-type", "application/grpc"),
        ("connection", "close"),
    ];
    let before = setting.fleet.sidecar_metric("plimsoll_decisions_total", "");
    let answer = caller.send("POST", "/orders/7?full=1", fields, "a body");
    assert!(
        answer.body.starts_with("POST /orders/7?full=1\n") && answer.body.ends_with("\na body")
    );
    assert!(answer.body.contains("\nx-tenant: acme\n"), "{answer:?}");
    assert!(
        !answer.body.contains("x-plimsoll-"),
        "no field of the sidecar is the caller's: {answer:?}"
    );
    let decided = || setting.fleet.sidecar_metric("plimsoll_decisions_total", "") - before;
    until_true("the decision", || decided() >= 1.0);
    assert_eq!(decided(), 1.0, "callers choose no cost");

    setting.fleet.save("policy.yaml", &policy(30, "enforce"));
    assert_body_of_sidecar(&refusal(&setting));
    setting.fleet.save("policy.yaml", &policy(0, "shadow"));
    until_true("a refusal that is not carried out", || {
        caller.get("/orders", &[]);
        setting.backend.withheld() > 0
    });

    setting.fleet.kill_sidecar();
    assert_eq!(
        caller.get("/orders", &[]).status,
        500,
        "ForwardAuth fails closed"
    );
    setting.fleet.restart_sidecar();
    until_true("an answer of the service", || {
        caller.get("/orders", &[]).status == 200
    });
}

#[test]
fn traefik_bounds_requests() {
    let Some(traefik) = tool("traefik::traefik_bounds_requests", "traefik") else {
        return;
    };
    let _turn = turn(OFFERED);
    let setting = Setting::with_rules("buckets: {}\n", Some(RULES));
    let _proxy = start(
        &setting,
        &traefik,
        &[("average: 2000", "average: 1"), ("burst: 400", "burst: 5")],
    );
    let caller = Caller::new(setting.address);
    until_true("a refusal by Traefik itself", || {
        caller.get("/", &[]).status == 429
    });
}
