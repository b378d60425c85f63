//! Certificates and protocols that are refused: both ends name the cause, and no report counts.

use std::time::Duration;

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::testing::{Authority, Validity};
use tokio::net::TcpStream;

use super::{DOMAIN, Process, aggregator, service, service_of, zone};
use crate::scripted::{ParentEvent, Running, Server, identity, patiently};

fn check_nothing_counted(server: &mut Server) {
    while let Ok(event) = server.events.try_recv() {
        assert!(!matches!(event, ParentEvent::Report(..)), "{event:?}");
    }
}

fn check_parts(text: &str, parts: &[&str]) {
    parts
        .iter()
        .for_each(|part| assert!(text.contains(part), "no `{part}` in: {text}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn misplaced_certificate_is_forbidden_at_both_ends() {
    let authority = Authority::new(DOMAIN);
    let own = identity(7);
    let parent = Process::new(&authority, aggregator());
    let own_zone = "spiffe://fleet.example/plimsoll/zone/eu-west-1a";
    for (role, parts) in [
        (
            service_of(own.zone.clone(), "cart"),
            ["/zone/eu-west-1a/service/cart", "checkout-api", "issue a"],
        ),
        (
            aggregator(),
            [
                "/zone/eu-west-1a/aggregator",
                "client of eu-west-1a/checkout-api",
                "issue a",
            ],
        ),
    ] {
        let mut server = Server::secured(&parent.certificates);
        let child = Process::new(&authority, role);
        let mut running = Running::secured(&server.https(), &child.certificates);
        let rejected = server.rejected().await;
        assert_eq!(
            (rejected.reason, rejected.child.as_ref()),
            ("forbidden", Some(&own))
        );
        check_parts(&rejected.cause, &parts);
        check_parts(&running.disconnected().await, &parts);
        check_nothing_counted(&mut server);
        running.stop().await;
    }
    // The child refuses a parent that it must not obey, and sends nothing.
    for (role, name) in [
        (
            PeerRole::Aggregator { zone: zone("b") },
            "spiffe://fleet.example/plimsoll/zone/b/aggregator",
        ),
        (
            PeerRole::Controller,
            "spiffe://fleet.example/plimsoll/controller",
        ),
        (service_of(own.zone.clone(), "cart"), "/service/cart"),
    ] {
        let other = Process::new(&authority, role);
        let mut server = Server::secured(&other.certificates);
        let child = Process::new(&authority, service());
        let mut running = Running::secured(&server.https(), &child.certificates);
        check_parts(
            &running.disconnected().await,
            &[own_zone, name, "correct the address"],
        );
        check_nothing_counted(&mut server);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_service_opens_no_stream_unchecked() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let mut server = Server::secured(&parent.certificates);
    let child = Process::new(&authority, service_of(zone("b"), "checkout-api"));
    let mut stream = server.stream_as(&child.certificates).await;
    stream.send(crate::scripted::greeting(7)).await;
    let status = patiently(stream.directives.message()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    let parts = [
        "zone/b/service/checkout-api",
        "zone/eu-west-1a/aggregator",
        "an aggregator of its zone",
    ];
    check_parts(status.message(), &parts);
    assert_eq!(server.rejected().await.reason, "forbidden");
    check_nothing_counted(&mut server);
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_mismatch_is_named_at_both_ends() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let mut server = Server::secured(&parent.certificates);
    let mut running = Running::greet(&server.uri());
    check_parts(
        &running.disconnected().await,
        &["answers plaintext with TLS", "https://", "certificates"],
    );
    check_parts(&server.logged("not_tls").await, &["does not speak TLS"]);
    check_nothing_counted(&mut server);
    running.stop().await;

    let mut server = Server::start(9);
    let child = Process::new(&authority, service());
    let mut running = Running::secured(&server.https(), &child.certificates);
    check_parts(
        &running.disconnected().await,
        &["does not speak TLS", "certificates"],
    );
    check_parts(
        &server.logged("not_plaintext").await,
        &["takes plaintext alone", "certificates", "http://"],
    );
    assert!(server.connections.failed_handshakes()["not_plaintext"] > 0);
    check_nothing_counted(&mut server);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_handshake_delays_no_other_connection() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = (
        Process::new(&authority, aggregator()),
        Process::new(&authority, service()),
    );
    let mut server = Server::secured(&parent.certificates);
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut running = Running::secured(&server.https(), &child.certificates);
    running.applied_limit(1).await;
    running.stop().await;
    // Nor does one delay the end of the process.
    server.closing.cancel();
    server.served().await;
    let counts = server.connections.counts();
    assert_eq!(
        (counts.pending, counts.timed_out),
        (64, 0),
        "the handshakes are still open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_its_opening_certificate() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let short = Validity::lasting(Duration::from_secs(3));
    let child = Process::valid(&authority, service(), short);
    let mut server = Server::secured(&parent.certificates);
    let mut running = Running::secured(&server.https(), &child.certificates);
    running.applied_limit(1).await;
    let parts = [
        "/zone/eu-west-1a/service/checkout-api has expired",
        "renew the files",
    ];
    check_parts(&running.disconnected().await, &parts);
    let rejected = server.rejected().await;
    assert_eq!(rejected.reason, "expired");
    check_parts(&rejected.cause, &parts);
    running.stop().await;
}
