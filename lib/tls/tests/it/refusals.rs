//! Refused handshakes: both ends name the cause, and neither gets a connection.

use std::sync::Arc;

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::rustls::{ClientConfig, ServerConfig};
use plimsoll_tls::testing::{Authority, Leaf, Request, Validity};
use plimsoll_tls::{HandshakeFailure, Tier, accept, connect, operator_client};
use tokio::io::AsyncWriteExt;

use crate::ends::{DOMAIN, Process, aggregator, child_with, meet, parent_with, service};

#[tokio::test]
async fn certificates_of_one_fleet_connect_every_hop() {
    let authority = Authority::new(DOMAIN);
    let intermediate = authority.intermediate();
    let controller = Process::new(&authority, PeerRole::Controller);
    for issuer in [&authority, &intermediate] {
        let (aggregator, service) = (
            Process::new(issuer, aggregator()),
            Process::new(issuer, service()),
        );
        for (parent, child) in [
            (&controller, &aggregator),
            (&aggregator, &aggregator),
            (&aggregator, &service),
        ] {
            let met = meet(
                parent.certificates.mutual_server(),
                child.certificates.child(),
            )
            .await;
            assert_eq!(
                met.at_parent.as_ref().unwrap().0.id,
                child.certificates.id()
            );
            assert_eq!(
                met.at_child.as_ref().unwrap().0.id,
                parent.certificates.id()
            );
            let not_after = child.certificates.health().not_after;
            assert_eq!(met.at_parent.unwrap().0.not_after, not_after);
        }
    }
}

/// A pair of ends, the labels at the parent and at the child, and a part of each text.
struct Case {
    name: &'static str,
    parent: Arc<ServerConfig>,
    child: Arc<ClientConfig>,
    labels: (&'static str, &'static str),
    texts: (&'static str, &'static str),
}

#[tokio::test]
async fn unacceptable_certificates_are_named_at_both_ends() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let child = Process::new(&authority, service());
    let usual = authority.request(service(), Validity::default());
    // This client trusts any aggregator of the authority, so the parent has to refuse.
    let lenient = operator_client(&parent.path("ca.crt"), Tier::Aggregator).unwrap();
    let issued = |request: Request| authority.issue(&request);
    let child_of = |request: Request| child_with(&lenient, &issued(request));
    let parent_of =
        |request: Request| parent_with(&parent.certificates.mutual_server(), &issued(request));
    let own_parent = || parent.certificates.mutual_server();
    let own_child = || child.certificates.child();
    let uris = |uris: &[&str]| Request {
        uris: uris.iter().map(ToString::to_string).collect(),
        ..usual.clone()
    };
    let valid = |validity| Request {
        validity,
        ..usual.clone()
    };
    let (same_name, other_name) = (Authority::new(DOMAIN), Authority::new("other.example"));
    let stranger = |authority: &Authority| {
        let leaf = authority.issue(&usual);
        (
            child_with(&lenient, &leaf),
            parent_with(&own_parent(), &leaf),
        )
    };
    let foreign = "spiffe://other.example/plimsoll/zone/eu-1/service/cart";
    let no_certificate = {
        let mut config = lenient.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let case = |name, parent, child, labels, texts| Case {
        name,
        parent,
        child,
        labels,
        texts,
    };
    let ca = "by an authority";
    let at_parent = [
        (
            "none",
            no_certificate,
            "no_certificate",
            "no_certificate",
            "give it tls.crt",
            "asks for one",
        ),
        (
            "expired",
            child_of(valid(Validity::ended())),
            "expired",
            "expired",
            "renew it",
            "renew it",
        ),
        // The alert is the same for both.
        (
            "early",
            child_of(valid(Validity::to_come())),
            "not_yet_valid",
            "expired",
            "clocks",
            "clocks",
        ),
        (
            "authority",
            stranger(&same_name).0,
            "unknown_authority",
            "unknown_authority",
            ca,
            ca,
        ),
        (
            "authority of other name",
            stranger(&other_name).0,
            "unknown_authority",
            "unknown_authority",
            ca,
            ca,
        ),
        (
            "domain",
            child_of(uris(&[foreign])),
            "foreign_domain",
            "foreign_domain",
            "trust domain",
            "trust domain",
        ),
        (
            "no name",
            child_of(uris(&[])),
            "no_identity",
            "foreign_domain",
            "has no identity",
            "its log",
        ),
        (
            "web",
            child_of(uris(&["https://a.example"])),
            "no_identity",
            "foreign_domain",
            "has no identity",
            "",
        ),
        (
            "other path",
            child_of(uris(&["spiffe://fleet.example/a"])),
            "no_identity",
            "foreign_domain",
            "/plimsoll/",
            "",
        ),
        (
            "two",
            child_of(uris(&[
                &usual.uris[0],
                "spiffe://fleet.example/plimsoll/controller",
            ])),
            "no_identity",
            "foreign_domain",
            "2 identities",
            "",
        ),
        (
            "usage",
            child_of(Request {
                client: false,
                ..usual.clone()
            }),
            "wrong_usage",
            "wrong_usage",
            "client authentication",
            "usage",
        ),
    ]
    .map(|(name, child, label, alert, text, alert_text)| {
        case(
            name,
            own_parent(),
            child,
            (label, alert),
            (text, alert_text),
        )
    });
    let at_child = [
        (
            "expired",
            parent_of(valid(Validity::ended())),
            "expired",
            "expired",
            "renew it",
        ),
        (
            "early",
            parent_of(valid(Validity::to_come())),
            "not_yet_valid",
            "expired",
            "clocks",
        ),
        (
            "authority",
            stranger(&same_name).1,
            "unknown_authority",
            "unknown_authority",
            ca,
        ),
        (
            "authority of other name",
            stranger(&other_name).1,
            "unknown_authority",
            "unknown_authority",
            ca,
        ),
        (
            "domain",
            parent_of(uris(&[foreign])),
            "foreign_domain",
            "foreign_domain",
            "trust domain",
        ),
        (
            "no name",
            parent_of(uris(&[])),
            "no_identity",
            "foreign_domain",
            "has no identity",
        ),
        (
            "usage",
            parent_of(Request {
                server: false,
                ..usual.clone()
            }),
            "wrong_usage",
            "wrong_usage",
            "server authentication",
        ),
    ]
    .map(|(name, parent, label, alert, text)| {
        case(name, parent, own_child(), (alert, label), ("", text))
    });
    for Case {
        name,
        parent,
        child,
        labels,
        texts,
    } in at_parent.into_iter().chain(at_child)
    {
        let met = meet(parent, child).await;
        assert_eq!(met.labels(), labels, "{name}: {met:?}");
        let (at_parent, at_child) = (met.at_parent.unwrap_err(), met.at_child.unwrap_err());
        assert!(
            at_parent.to_string().contains(texts.0),
            "{name}: {at_parent}"
        );
        assert!(at_child.to_string().contains(texts.1), "{name}: {at_child}");
        for failure in [at_parent, at_child] {
            assert!(
                HandshakeFailure::LABELS.contains(&failure.label()),
                "{name}"
            );
            assert!(failure.to_string().len() < 1_000, "{name}: {failure}");
        }
    }
}

#[tokio::test]
async fn overlong_chain_is_refused_before_verification() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let leaf = authority.issue(&authority.request(aggregator(), Validity::default()));
    // All have one name, so each is tried as the issuer of each.
    let others: Vec<Authority> = (0..5).map(|_| Authority::new("other.example")).collect();
    for (intermediates, labels) in [(4, ("", "")), (5, ("other", "foreign_domain"))] {
        // This child has no session to resume.
        let child = Process::new(&authority, service());
        let more: String = others[..intermediates].iter().map(Authority::pem).collect();
        let leaf = Leaf {
            certificate: format!("{}{more}", leaf.certificate),
            key: leaf.key.clone(),
        };
        let met = meet(
            parent.certificates.mutual_server(),
            child_with(&parent.certificates.child(), &leaf),
        )
        .await;
        assert_eq!(met.labels(), labels, "{met:?}");
        let met = meet(
            parent_with(&parent.certificates.mutual_server(), &leaf),
            child.certificates.child(),
        )
        .await;
        assert_eq!(met.labels(), (labels.1, labels.0), "{met:?}");
        if let Err(failure) = met.at_child {
            assert!(
                failure
                    .to_string()
                    .contains("5 certificates follow the leaf"),
                "{failure}"
            );
        }
    }
}

#[tokio::test]
async fn another_protocol_is_named_at_both_ends() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = (
        Process::new(&authority, aggregator()),
        Process::new(&authority, service()),
    );
    let with_protocols = |protocols: &[&[u8]]| {
        let mut config = ClientConfig::clone(&child.certificates.child());
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    };
    for protocols in [&[][..], &[&b"http/1.1"[..]]] {
        let met = meet(
            parent.certificates.mutual_server(),
            with_protocols(protocols),
        )
        .await;
        assert_eq!(
            met.labels(),
            ("no_alpn", "no_alpn"),
            "{protocols:?}: {met:?}"
        );
    }
}

#[tokio::test]
async fn older_versions_of_tls_are_refused() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let provider = plimsoll_tls::rustls::crypto::ring::default_provider();
    let roots = plimsoll_tls::rustls::RootCertStore::empty();
    let child = ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&plimsoll_tls::rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let met = meet(parent.certificates.mutual_server(), child.into()).await;
    assert_eq!(met.labels(), ("other", "other"), "{met:?}");
    let failure = met.at_parent.unwrap_err().to_string();
    assert!(failure.contains("does not speak TLS 1.3"), "{failure}");
}

#[tokio::test]
async fn plaintext_peer_is_named() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = (
        Process::new(&authority, aggregator()),
        Process::new(&authority, service()),
    );
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    for (sent, label) in [
        (&preface[..], "not_tls"),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "not_tls"),
        (&[0; 4_096], "not_tls"),
        (&[0xff; 70_000], "not_tls"),
        (b"", "other"),
        (b"\x16", "other"),
    ] {
        let (mut peer, own) = tokio::io::duplex(1 << 20);
        peer.write_all(sent).await.unwrap();
        peer.shutdown().await.unwrap();
        let failure = accept(parent.certificates.mutual_server(), own)
            .await
            .unwrap_err();
        assert_eq!(failure.label(), label, "{sent:?}: {failure}");
    }
    for (sent, label) in [
        (&settings[..], "not_tls"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not_tls"),
        (b"", "other"),
    ] {
        let (mut peer, own) = tokio::io::duplex(1 << 20);
        peer.write_all(sent).await.unwrap();
        peer.shutdown().await.unwrap();
        let name = "a.example".try_into().unwrap();
        let failure = connect(child.certificates.child(), name, own)
            .await
            .unwrap_err();
        assert_eq!(failure.label(), label, "{sent:?}: {failure}");
        let says = ["both ends", "does not speak TLS"];
        assert!(
            says.iter().any(|part| failure.to_string().contains(part)),
            "{failure}"
        );
    }
}
