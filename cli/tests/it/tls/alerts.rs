//! The shipped alerts of trust: each fires on its fault at real processes, and is resolved when the
//! fault is over.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{http, run, until};
use plimsoll_testing::turns::{IDLE, turn};
use plimsoll_tls::testing::{Authority, Validity};

use super::tiers::{
    DOMAIN, Files, SERVICE, aggregator, aggregator_of, certs, controller, metrics, service,
    service_of, url,
};
use crate::prometheus::alerts::{Alerts, OF_TRUST};

/// A tokens file of one token, which no caller has.
const TOKENS: &str =
    "alice viewer sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n";

#[test]
fn trust_alerts_fire_and_are_resolved() {
    let _turn = turn(IDLE);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let tokens = files.path("tokens");
    fs::write(&tokens, TOKENS).unwrap();
    let tokens_flag = [
        "--tokens",
        tokens.to_str().unwrap(),
        "--admin-open-on-loopback",
    ];
    let of_controller = files.issue("controller", &authority, controller());
    let of_aggregator = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    let top = files.controller(100, &[&certs(&of_controller)[..], &tokens_flag].concat());
    let bottom = aggregator("zone-a", "one", &url("https", &top), &certs(&of_aggregator));
    until("the aggregator to connect", || {
        (metric(&metrics(&bottom, "admin"), "plimsoll_uplink_connected", "") == 1.0).then_some(())
    });
    let test = "tls::alerts::trust_alerts_fire_and_are_resolved";
    let pages = vec![top.address("admin"), bottom.address("admin")];
    let Some(mut alerts) = Alerts::of(test, pages) else {
        return;
    };

    let expiring = Validity {
        not_before: SystemTime::now() - Duration::from_secs(36_000),
        ..Validity::default()
    };
    authority.write(&of_aggregator, aggregator_of("zone-a"), expiring);
    alerts.until_firing(&["PlimsollCertificateExpiring"]);
    authority.write(&of_aggregator, aggregator_of("zone-a"), Validity::default());
    alerts.until_resolved(&["PlimsollCertificateExpiring"]);

    let trusted = of_aggregator.join("ca.crt");
    fs::write(&trusted, Authority::new(DOMAIN).pem()).unwrap();
    alerts.until_firing(&["PlimsollCertificateUntrusted"]);
    fs::write(&trusted, authority.pem()).unwrap();
    alerts.until_resolved(&["PlimsollCertificateUntrusted"]);

    let certificate = of_aggregator.join("tls.crt");
    for (file, good) in [
        (&certificate, fs::read(&certificate).unwrap()),
        (&tokens, TOKENS.into()),
    ] {
        fs::write(file, "garbage").unwrap();
        alerts.until_firing(&["PlimsollCredentialsRefused"]);
        fs::write(file, good).unwrap();
        alerts.until_resolved(&["PlimsollCredentialsRefused"]);
    }

    let foreign = files.issue(
        "foreign",
        &Authority::new(DOMAIN),
        service_of("zone-a", SERVICE),
    );
    let stranger = service("zone-a", &url("https", &bottom), &certs(&foreign));
    alerts.until_firing(&["PlimsollHandshakesFailing"]);
    drop(stranger);

    // More than the burst of failed attempts, like a script that has lost its token.
    for _ in 0..30 {
        let (code, _) = http(
            top.address("admin"),
            "GET",
            "/status",
            &[("authorization", "Bearer none")],
        )
        .unwrap();
        assert!([401, 429].contains(&code), "{code}");
    }
    alerts.until_firing(&["PlimsollAdminRefused"]);
    alerts.until_resolved(&["PlimsollHandshakesFailing", "PlimsollAdminRefused"]);

    // A directory cannot be written as a log.
    let log = files.path("state").join("audit.log");
    let away = log.with_extension("away");
    fs::rename(&log, &away).unwrap();
    fs::create_dir(&log).unwrap();
    let admin = format!("http://{}", top.address("admin"));
    let killed = run(&["kill", "on", "--reason", "a test", "--controller", &admin]);
    assert!(
        killed.status.success(),
        "{}",
        String::from_utf8_lossy(&killed.stderr)
    );
    alerts.until_firing(&["PlimsollAuditFailing"]);
    fs::remove_dir(&log).unwrap();
    fs::rename(&away, &log).unwrap();
    alerts.until_resolved(&["PlimsollAuditFailing"]);

    let missing: BTreeSet<&str> = OF_TRUST
        .into_iter()
        .filter(|alert| !alerts.fired.contains(*alert))
        .collect();
    assert!(missing.is_empty(), "{missing:?} did not fire");
}
