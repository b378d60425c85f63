//! A service with a certificate that expires while it runs: it continues to decide by its
//! directives, reports the fault, and reconnects by itself when the files are renewed.

use std::time::Duration;

use plimsoll_testing::fleet::{BUCKET, metric};
use plimsoll_testing::process::{Process, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use plimsoll_tls::testing::{Authority, Validity};

use super::tiers::{
    DOMAIN, Files, SERVICE, aggregator, aggregator_of, certs, controller, is_served, logged,
    service, service_of, url,
};

/// Life of the certificate, which doubles until it is long enough for the service to connect.
const LIFE: Duration = Duration::from_secs(6);
const REQUESTS: usize = 40;

fn is_connected(service: &Process) -> bool {
    service.metric("listen", "plimsoll_feed_connected", "") == 1.0
}

#[test]
fn service_with_expired_certificate_keeps_deciding() {
    let _turn = turn(IDLE);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let of_controller = files.issue("controller", &authority, controller());
    let of_aggregator = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    // Everything is refused, so that each decision shows whether the directives are applied.
    let top = files.controller(0, &certs(&of_controller));
    let zone = aggregator("zone-a", "a", &url("https", &top), &certs(&of_aggregator));
    let role = || service_of("zone-a", SERVICE);
    let (service, directory) = (1..)
        .map(|attempt| {
            let validity = Validity::lasting(LIFE * (1 << attempt));
            let directory =
                files.issue_for(&format!("service-{attempt}"), &authority, role(), validity);
            (
                service("zone-a", &url("https", &zone), &certs(&directory)),
                directory,
            )
        })
        .find(|(service, _)| {
            let expired = || {
                service
                    .log()
                    .iter()
                    .any(|line| line.contains("certificate has expired"))
            };
            until_true("directives or the end of the certificate", || {
                is_connected(service) && !is_served(service) || expired()
            });
            !expired()
        })
        .unwrap();

    logged(
        &service,
        &["certificate has expired, peers refuse it: renew it"],
    );
    until_true("the stream to end", || !is_connected(&service));
    logged(&service, &["expired", "renew"]);
    logged(&zone, &["expired", "renew"]);
    until_true("the cause in the metrics", || {
        service.metric("listen", "plimsoll_feed_refused", "reason=\"expired\"") == 1.0
    });
    let before = service.metrics("listen");
    assert_eq!(
        (0..REQUESTS).filter(|_| is_served(&service)).count(),
        0,
        "the directives stay in force"
    );
    let after = service.metrics("listen");
    let dropped = |page: &str| {
        metric(
            page,
            "plimsoll_decisions_total",
            "mode=\"enforce\",result=\"drop\"",
        )
    };
    assert_eq!(
        dropped(&after) - dropped(&before),
        REQUESTS as f64,
        "{after}"
    );
    assert_eq!(zone.metric("admin", "plimsoll_children", ""), 0.0);

    authority.write(&directory, role(), Validity::default());
    until_true("the service to be connected again", || {
        is_connected(&service)
    });
    until_true("the cause to be gone from the metrics", || {
        service.metric("listen", "plimsoll_feed_refused", "") == 0.0
    });
    let sent = service.metric("listen", "plimsoll_decisions_total", "");
    until("its requests to be counted", || {
        (top.status()["buckets"][BUCKET]["offered"].as_f64()? >= sent).then_some(())
    });
}
