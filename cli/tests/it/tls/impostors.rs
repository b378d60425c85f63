//! Parents with wrong certificates, and plaintext where TLS is expected: the child names the cause and the remedy, and
//! sends nothing.

use std::path::PathBuf;

use plimsoll_tls::testing::{Authority, Validity};

use super::proxy::Proxy;
use super::tiers::{
    DOMAIN, Files, SERVICE, aggregator, aggregator_of, certs, controller, is_served, logged, metrics,
    service, service_of, status, url,
};
use crate::fleet::{BUCKET, metric};
use crate::process::{Process, run, until};
use crate::turns::turn;

const LOAD: u32 = 400;

#[test]
fn child_sends_nothing_to_a_parent_with_a_wrong_certificate() {
    let _turn = turn(LOAD);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    // Behind each hop with a certificate are tiers without any.
    let top = files.controller(100, &[]);
    let zone = aggregator("zone-a", "a", &url("http", &top), &[]);
    let issue = |name: &str, role| files.issue(name, &authority, role);
    let own = issue("own-service", service_of("zone-a", SERVICE));
    let own_aggregator = issue("own-aggregator", aggregator_of("zone-b"));

    let role = aggregator_of("zone-a");
    let wrong: [(PathBuf, &str, &str); 6] = [
        (files.issue_for("ended", &authority, role.clone(), Validity::ended()), "expired", "s ago: renew it"),
        (
            files.issue("foreign", &Authority::new(DOMAIN), role.clone()),
            "unknown_authority",
            "add its authority to ca.crt",
        ),
        (
            files.issue_foreign("domain", &authority, role),
            "foreign_domain",
            "is not of the trust domain test.example",
        ),
        (
            issue("zone-b", aggregator_of("zone-b")),
            "forbidden",
            "plimsoll/zone/zone-b/aggregator may not direct",
        ),
        (
            issue("service", service_of("zone-a", SERVICE)),
            "forbidden",
            "plimsoll/zone/zone-a/service/demo may not direct",
        ),
        (issue("controller", controller()), "forbidden", "plimsoll/controller may not direct"),
    ];
    let mut children: Vec<(Process, Proxy)> = Vec::new();
    for (shown, reason, cause) in &wrong {
        let proxy = Proxy::for_parent(zone.address("listen"), shown);
        let child = service("zone-a", &format!("https://{}", proxy.address), &certs(&own));
        assert!(is_served(&child), "it goes on deciding");
        logged(&child, &[cause]);
        until(&format!("the refusal of {}", shown.display()), || {
            let page = metrics(&child, "listen");
            (metric(&page, "plimsoll_feed_refused", &format!("reason=\"{reason}\"")) == 1.0).then_some(())
        });
        children.push((child, proxy));
    }
    for (shown, _, cause) in &wrong[..3] {
        let proxy = Proxy::for_parent(top.address("listen"), shown);
        let child = aggregator("zone-b", "b", &format!("https://{}", proxy.address), &certs(&own_aggregator));
        logged(&child, &[cause]);
        children.push((child, proxy));
    }
    let of_service = &wrong[4].0;
    for parent in [&top, &zone] {
        let proxy = Proxy::for_parent(parent.address("listen"), of_service);
        let child = aggregator("zone-b", "b", &format!("https://{}", proxy.address), &certs(&own_aggregator));
        logged(&child, &["plimsoll/zone/zone-a/service/demo may not direct"]);
        children.push((child, proxy));
    }
    // TLS at a plaintext port.
    let plaintext = "give both ends certificates, or neither";
    let of_service = service("zone-a", &url("https", &zone), &certs(&own));
    logged(&of_service, &[plaintext]);
    for parent in [&top, &zone] {
        logged(&aggregator("zone-b", "b", &url("https", parent), &certs(&own_aggregator)), &[plaintext]);
    }

    assert_eq!(metric(&metrics(&zone, "admin"), "plimsoll_children", ""), 0.0);
    let seen = status(&top);
    assert_eq!(seen["aggregators"].as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(seen["buckets"][BUCKET]["offered"].as_f64().unwrap_or_default(), 0.0, "{seen}");
}

#[test]
fn process_that_cannot_be_what_its_certificate_says_ends_at_its_start() {
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let issue = |name: &str, role| files.issue(name, &authority, role).display().to_string();
    let [of_controller, of_aggregator, of_service] = [
        issue("controller", controller()),
        issue("aggregator", aggregator_of("zone-a")),
        issue("service", service_of("zone-a", SERVICE)),
    ];
    let other = issue("other", service_of("zone-a", "other"));
    let policy = files.path("policy.yaml").display().to_string();
    std::fs::write(&policy, crate::fleet::policy(1, "enforce", false)).unwrap();
    let state = files.path("state").display().to_string();
    let missing = files.path("missing").display().to_string();
    let free = ["--listen", "127.0.0.1:0"];
    let zone = ["aggregator", "--zone", "zone-a", "--admin", "127.0.0.1:0"];
    let zone_b = ["aggregator", "--zone", "zone-b", "--admin", "127.0.0.1:0"];
    let top = ["controller", "--policy", &policy, "--state-dir", &state, "--admin", "127.0.0.1:0"];
    let client = ["service", "--zone", "zone-a"];
    let parent = ["--controller", "https://127.0.0.1:9"];
    let zone_parent = ["--aggregator", "https://127.0.0.1:9"];
    let cases: [(&str, Vec<&str>, &[&str]); 12] = [
        (
            "a controller with an aggregator's",
            [&top[..], &["--certs", &of_aggregator]].concat(),
            &["--certs"],
        ),
        ("a controller with a service's", [&top[..], &["--certs", &of_service]].concat(), &["--certs"]),
        (
            "an aggregator with a controller's",
            [&zone[..], &parent, &["--certs", &of_controller]].concat(),
            &["--certs"],
        ),
        (
            "an aggregator with a service's",
            [&zone[..], &parent, &["--certs", &of_service]].concat(),
            &["--certs"],
        ),
        (
            "an aggregator of another zone",
            [&zone_b[..], &parent, &["--certs", &of_aggregator]].concat(),
            &["zone-a", "zone-b"],
        ),
        (
            "a service with an aggregator's",
            [&client[..], &zone_parent, &["--certs", &of_aggregator]].concat(),
            &["aggregator"],
        ),
        ("a service of another name", [&client[..], &zone_parent, &["--certs", &other]].concat(), &["other"]),
        (
            "no files",
            [&zone[..], &parent, &["--certs", &missing]].concat(),
            &["missing/tls.crt", "tls.key and ca.crt"],
        ),
        ("an aggregator without any, to https", [&zone[..], &parent].concat(), &["--certs"]),
        ("a service without any, to https", [&client[..], &zone_parent].concat(), &["--certs"]),
        (
            "plaintext beyond loopback",
            [&top[..], &["--listen", "0.0.0.0:0"]].concat(),
            &["--certs", "--insecure", "plimsoll certs"],
        ),
        (
            "a plaintext parent beyond loopback",
            [&zone[..], &["--controller", "http://192.0.2.1:7400"]].concat(),
            &["--certs", "--insecure"],
        ),
    ];
    for (what, args, named) in cases {
        let free = if args.contains(&"--listen") { &[][..] } else { &free };
        let ended = run(&[&args[..], free].concat());
        let text = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{what}: {text}");
        for name in named {
            assert!(text.contains(name), "{what} does not name {name}: {text}");
        }
    }
}
