//! Refusals name their cause, in the answers, figures and statuses of real processes.

use std::fs;

use serde_json::Value;

use crate::fleet::{TENANTS, metric};
use crate::process::{Process, http, http_get, run, until};
use crate::turns::{IDLE, turn};

const OFFERED: u32 = 200;
const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

const POLICY: &str = "\
rollout: { require_gates: false }
buckets:
  over: { limit: 20, mode: enforce }
  own: { limit: 1000, tenant_limit: 10, mode: enforce }
  watched: { limit: 20, mode: shadow }
";

fn service(aggregator: &str, flags: &[&str]) -> Process {
    let common = ["service", "--name", "service", "--listen", "127.0.0.1:0", "--aggregator", aggregator];
    Process::start(&[&common[..], flags].concat())
}

/// The reason of the refusal of a request; `None` if it is served.
fn refused(service: &Process, bucket: &str) -> Option<String> {
    let path = format!("/{bucket}");
    let (status, body) = http(service.address("listen"), "GET", &path, &[("x-tenant", "acme")]).unwrap();
    let problem: Value = (status == 429).then(|| serde_json::from_str(&body).unwrap())?;
    Some(problem["reason"].as_str().unwrap().to_owned())
}

#[test]
fn overload_and_a_tenant_at_its_own_limit_are_told_apart() {
    let _turn = turn(3 * OFFERED);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("policy.yaml"), POLICY).unwrap();
    fs::write(path("tenants.yaml"), TENANTS).unwrap();
    let (policy, tenants, state) = (path("policy.yaml"), path("tenants.yaml"), path("state"));
    let files = ["controller", "--policy", &policy, "--tenants", &tenants, "--state-dir", &state];
    let controller = Process::start(&[&files[..], &FREE].concat());
    let parent = format!("http://{}", controller.address("listen"));
    let aggregator = Process::start(&[&["aggregator", "--controller", &parent][..], &FREE].concat());
    let aggregator = format!("http://{}", aggregator.address("listen"));
    let service = service(&aggregator, &["--buckets", "over,own,watched"]);

    let target = |bucket| format!("http://{}/{bucket}", service.address("listen"));
    let targets = ["over", "own", "watched"].map(target).join(",");
    let rps = (3 * OFFERED).to_string();
    let _load = Process::spawn(&["load", "--target", &targets, "--rps", &rps, "--tenant", "acme"]);
    for (bucket, reason) in [("over", "cluster_overload"), ("own", "tenant_limit")] {
        until(&format!("{bucket} to refuse for {reason}"), || {
            (refused(&service, bucket)? == reason).then_some(())
        });
    }
    assert_eq!(refused(&service, "watched"), None);

    for (bucket, enforced, reason) in [
        ("over", "true", "cluster_overload"),
        ("own", "true", "tenant_limit"),
        ("watched", "false", "cluster_overload"),
    ] {
        let labels = [format!("bucket=\"{bucket}\""), format!("enforced=\"{enforced}\"")];
        until(&format!("refusals of {bucket} for {reason} to be counted"), || {
            let (_, page) = http_get(service.address("listen"), "/metrics");
            let lines = page.lines().filter(|line| labels.iter().all(|label| line.contains(label)));
            let lines = lines.collect::<Vec<_>>().join("\n");
            let counted = metric(&lines, "plimsoll_refusals_total", &format!("reason=\"{reason}\""));
            (counted > 0.0).then_some(())
        });
    }

    let admin = format!("http://{}", controller.address("admin"));
    until("the status to name the reasons", || {
        let (_, status) = http_get(controller.address("admin"), "/status");
        let status: Value = serde_json::from_str(&status).unwrap();
        let ratio = |bucket: &str, name: &str| status["buckets"][bucket][name].as_f64();
        let (over, watched) = (ratio("over", "refused_ratio")?, ratio("watched", "would_refused_ratio")?);
        assert_eq!(
            (ratio("over", "would_refused_ratio"), ratio("watched", "refused_ratio")),
            (Some(0.0), Some(0.0))
        );
        let reason = |bucket: &str| status["buckets"][bucket]["tenants"]["acme"]["drop_reason"].clone();
        let named = reason("over") == "cluster_overload" && reason("own") == "tenant_limit";
        (named && over > 0.5 && watched > 0.5).then_some(())
    });
    let text = String::from_utf8(run(&["status", "--controller", &admin]).stdout).unwrap();
    let line =
        |bucket: &str| text.lines().find(|line| line.starts_with(&format!("bucket {bucket}:"))).unwrap();
    assert!(
        line("over").contains(", refused ")
            && line("over").contains(", law ")
            && line("over").ends_with(" (cluster_overload)"),
        "{text}"
    );
    assert!(line("own").ends_with(" (tenant_limit)"), "{text}");
    assert!(line("watched").contains(", would refuse "), "{text}");
}

#[test]
fn refusal_before_the_first_directive_is_a_cold_start() {
    let _turn = turn(IDLE);
    // Nothing listens on the discard port.
    let service = service("http://127.0.0.1:9", &["--buckets", "over", "--cold-rps", "over=0"]);
    assert_eq!(refused(&service, "over").as_deref(), Some("cold_start"));
    let (_, page) = http_get(service.address("listen"), "/metrics");
    assert_eq!(metric(&page, "plimsoll_refusals_total", "reason=\"cold_start\""), 1.0);
}
