//! Children with wrong certificates at the ports of a controller and of an aggregator: both ends name the cause and
//! the remedy, the metrics count it, and nothing of these children is admitted.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::testing::{Authority, Validity};

use super::proxy::Proxy;
use super::tiers::{
    DOMAIN, Files, SERVICE, aggregator, aggregator_of, certs, controller, is_served, logged, metrics,
    service, service_of, status, url,
};
use crate::fleet::{BUCKET, metric};
use crate::process::{Process, http_get, until};
use crate::turns::turn;

/// About the load of thirty processes that connect again and again.
const LOAD: u32 = 600;
const LIMIT: u32 = 1_000;
/// The requests of the service with the right certificate.
const REQUESTS: u32 = 20;

/// A child without certificates, with its zone.
#[derive(Clone, Copy, Debug)]
enum Plain {
    Service(&'static str),
    Aggregator(&'static str),
}

impl Plain {
    fn start(self, name: &str, parent: &str) -> Process {
        match self {
            Self::Service(zone) => {
                let service = service(zone, parent, &["--name", name]);
                assert!(is_served(&service), "without directives, it admits and counts");
                service
            }
            Self::Aggregator(zone) => aggregator(zone, name, parent, &[]),
        }
    }
}

/// A parent over TLS and the children that it must refuse.
struct Hop<'a> {
    files: &'a Files,
    authority: &'a Authority,
    parent: &'a Process,
    name: &'static str,
    children: Vec<(Process, Option<Proxy>)>,
}

impl Hop<'_> {
    /// Connects children whose certificates allow another stream than theirs.
    fn forbids(&mut self, children: &[(Plain, PeerRole, &str)]) {
        for (at, (child, shown, cause)) in children.iter().enumerate() {
            let name = format!("{}-forbidden-{at}", self.name);
            let directory = self.files.issue(&name, self.authority, shown.clone());
            let proxy = Proxy::for_children(self.parent.address("listen"), Some(&directory));
            let process = child.start(&name, &format!("http://{}", proxy.address));
            for end in [&process, self.parent] {
                logged(end, &[cause]);
            }
            self.children.push((process, Some(proxy)));
        }
        self.counted("plimsoll_streams_rejected_total", "forbidden", children.len());
    }

    /// Connects a child without certificates through a hop that shows this one.
    fn breaks(&mut self, child: Plain, shown: Option<&Path>, reason: &str, cause: &str) {
        let proxy = Proxy::for_children(self.parent.address("listen"), shown);
        let process = child.start(&format!("{}-{reason}", self.name), &format!("http://{}", proxy.address));
        logged(self.parent, &[cause]);
        self.counted("plimsoll_handshakes_failed_total", reason, 1);
        self.children.push((process, Some(proxy)));
    }

    fn counted(&self, name: &str, reason: &str, least: usize) {
        until(&format!("{name} by {reason} of {}", self.name), || {
            let count = metric(&metrics(self.parent, "admin"), name, &format!("reason=\"{reason}\""));
            (count >= least as f64).then_some(())
        });
    }

    /// Connects children whose certificates have the right identity, and fail at the handshake.
    fn refuses_handshakes(&mut self, child: Plain, role: &PeerRole) {
        let (files, authority) = (self.files, self.authority);
        let hop = self.name;
        let path = |reason: &str| format!("{hop}-{reason}");
        let expired = files.issue_for(&path("expired"), authority, role.clone(), Validity::ended());
        let domain = files.issue_foreign(&path("domain"), authority, role.clone());
        let foreign = files.issue(&path("foreign"), &Authority::new(DOMAIN), role.clone());
        self.breaks(child, Some(&expired), "expired", "s ago: renew it");
        self.breaks(child, Some(&domain), "foreign_domain", "is not of the trust domain test.example");
        self.breaks(child, Some(&foreign), "unknown_authority", "add its authority to ca.crt");
        self.breaks(child, None, "no_certificate", "give it tls.crt, tls.key and ca.crt");
        // Plaintext at the port.
        let process = child.start(&path("plaintext"), &url("http", self.parent));
        logged(self.parent, &["give both ends certificates, or neither"]);
        self.counted("plimsoll_handshakes_failed_total", "not_tls", 1);
        self.children.push((process, None));
    }
}

/// Writes a certificate of a foreign authority, beside which the holder trusts that of the fleet.
fn issue_with_two_authorities(files: &Files, name: &str, own: &Authority, role: PeerRole) -> PathBuf {
    let foreign = Authority::new(DOMAIN);
    let directory = files.issue(name, &foreign, role);
    fs::write(directory.join("ca.crt"), [foreign.pem(), own.pem()].concat()).unwrap();
    directory
}

#[test]
fn children_with_wrong_certificates_are_refused_at_every_hop_and_counted_nowhere() {
    let _turn = turn(LOAD);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let of_controller = files.issue("controller", &authority, controller());
    let of_aggregator = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    let of_service = files.issue("service", &authority, service_of("zone-a", SERVICE));
    let top = files.controller(LIMIT, &certs(&of_controller));
    let zone = aggregator("zone-a", "a", &url("https", &top), &certs(&of_aggregator));
    let hop = |name, parent| Hop { files: &files, authority: &authority, parent, name, children: Vec::new() };

    let mut to_zone = hop("service-to-aggregator", &zone);
    let (in_a, in_b) = (Plain::Service("zone-a"), Plain::Service("zone-b"));
    to_zone.refuses_handshakes(in_a, &service_of("zone-a", SERVICE));
    let opens_none = |who: &str| format!("spiffe://test.example/plimsoll/{who} opens no stream at");
    let not_for = |of: &str, what: &str| {
        format!("spiffe://test.example/plimsoll/{of} does not allow reports of the {what}: issue")
    };
    let reports_of_service = |zone: &str| format!("client of {zone}/{SERVICE}");
    to_zone.forbids(&[
        (in_b, service_of("zone-b", SERVICE), &opens_none("zone/zone-b/service/demo")),
        (
            in_b,
            service_of("zone-a", SERVICE),
            &not_for("zone/zone-a/service/demo", &reports_of_service("zone-b")),
        ),
        (
            in_a,
            service_of("zone-a", "other"),
            &not_for("zone/zone-a/service/other", &reports_of_service("zone-a")),
        ),
        (in_a, aggregator_of("zone-a"), &not_for("zone/zone-a/aggregator", &reports_of_service("zone-a"))),
        (in_a, controller(), &opens_none("controller")),
    ]);

    let mut to_controller = hop("aggregator-to-controller", &top);
    let (of_a, of_b) = (Plain::Aggregator("zone-a"), Plain::Aggregator("zone-b"));
    to_controller.refuses_handshakes(of_b, &aggregator_of("zone-b"));
    to_controller.forbids(&[
        (of_b, service_of("zone-b", SERVICE), &opens_none("zone/zone-b/service/demo")),
        (
            of_b,
            aggregator_of("zone-a"),
            &not_for("zone/zone-a/aggregator", "aggregator of zone-b/plimsoll-aggregator"),
        ),
        (of_b, controller(), &opens_none("controller")),
        (in_a, aggregator_of("zone-a"), &not_for("zone/zone-a/aggregator", &reports_of_service("zone-a"))),
        (in_a, service_of("zone-a", SERVICE), &opens_none("zone/zone-a/service/demo")),
    ]);

    let above = aggregator("zone-a", "above", &url("https", &top), &certs(&of_aggregator));
    let mut to_aggregator = hop("aggregator-to-aggregator", &above);
    to_aggregator.refuses_handshakes(of_b, &aggregator_of("zone-b"));
    to_aggregator.forbids(&[
        (
            of_a,
            service_of("zone-a", SERVICE),
            &not_for("zone/zone-a/service/demo", "aggregator of zone-a/plimsoll-aggregator"),
        ),
        (
            of_a,
            aggregator_of("zone-b"),
            &not_for("zone/zone-b/aggregator", "aggregator of zone-a/plimsoll-aggregator"),
        ),
        (of_b, controller(), &opens_none("controller")),
    ]);

    let listed = |tier: &Process, list: &str| status(tier)[list].as_array().map_or(0, Vec::len);
    for aggregator in [&zone, &above] {
        assert_eq!(listed(aggregator, "clients"), 0, "{}", status(aggregator));
        assert_eq!(metric(&metrics(aggregator, "admin"), "plimsoll_children", ""), 0.0);
    }
    assert_eq!(listed(&top, "aggregators"), 2, "{}", status(&top));

    for parent in [&top, &zone] {
        until("a refused child in the status", || {
            let named = status(parent)["refused_children"].to_string();
            (named.contains("does not allow reports of") && named.contains("issue a certificate"))
                .then_some(())
        });
    }

    // One with the right certificate is counted, and nothing beside it.
    let right = service("zone-a", &url("https", &zone), &certs(&of_service));
    until("the service to be connected", || {
        (metric(&metrics(&right, "listen"), "plimsoll_feed_connected", "") == 1.0).then_some(())
    });
    (0..REQUESTS).for_each(|_| drop(http_get(right.address("listen"), &format!("/{BUCKET}"))));
    until("its requests to be counted", || {
        let offered = status(&top)["buckets"][BUCKET]["offered"].as_f64()?;
        let sent = f64::from(REQUESTS);
        assert!(offered <= sent, "{offered} of {sent}: a request of another service was counted");
        (offered == sent).then_some(())
    });
}

#[test]
fn child_with_a_certificate_that_its_parent_refuses_names_the_cause_itself() {
    let _turn = turn(LOAD);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let of_controller = files.issue("controller", &authority, controller());
    let of_aggregator = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    let top = files.controller(LIMIT, &certs(&of_controller));
    let zone = aggregator("zone-a", "a", &url("https", &top), &certs(&of_aggregator));
    let role = service_of("zone-a", SERVICE);
    let foreign = issue_with_two_authorities(&files, "foreign-service", &authority, role.clone());
    let expired = files.issue_for("expired-service", &authority, role, Validity::ended());
    for (directory, reason, cause) in [
        (foreign, "unknown_authority", "add its authority to ca.crt at both ends"),
        (expired, "expired", "renew"),
    ] {
        let refused = service("zone-a", &url("https", &zone), &certs(&directory));
        assert!(is_served(&refused), "it goes on deciding");
        logged(&refused, &[cause]);
        until("the refusal in the metrics of the service", || {
            let page = metrics(&refused, "listen");
            let reason = format!("reason=\"{reason}\"");
            (metric(&page, "plimsoll_feed_refused", &reason) == 1.0).then_some(())
        });
        until("the failed handshake in the metrics of the aggregator", || {
            let reason = format!("reason=\"{reason}\"");
            let page = metrics(&zone, "admin");
            (metric(&page, "plimsoll_handshakes_failed_total", &reason) > 0.0).then_some(())
        });
    }
    let role = aggregator_of("zone-b");
    let foreign = issue_with_two_authorities(&files, "foreign-aggregator", &authority, role);
    let refused = aggregator("zone-b", "b", &url("https", &top), &certs(&foreign));
    logged(&refused, &["add its authority to ca.crt at both ends"]);
    until("the failed handshake in the metrics of the controller", || {
        let page = metrics(&top, "admin");
        (metric(&page, "plimsoll_handshakes_failed_total", "unknown_authority") > 0.0).then_some(())
    });
    assert_eq!(metric(&metrics(&zone, "admin"), "plimsoll_children", ""), 0.0);
}
