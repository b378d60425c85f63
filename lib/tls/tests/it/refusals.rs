//! Refused handshakes: both ends name the cause, and neither gets a connection.

use std::sync::Arc;

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::rustls::{ClientConfig, ServerConfig};
use plimsoll_tls::testing::{Authority, Leaf, Request, Validity};
use plimsoll_tls::{HandshakeFailure, Tier, accept, connect, operator_client};
use tokio::io::AsyncWriteExt;

use crate::ends::{DOMAIN, Process, aggregator, child_with, meet, pair, parent_with, service};

#[tokio::test]
async fn certificates_of_one_fleet_connect_every_hop() {
    let authority = Authority::new(DOMAIN);
    let intermediate = authority.intermediate();
    let controller = Process::new(&authority, PeerRole::Controller);
    for issuer in [&authority, &intermediate] {
        let (aggregator, service) = pair(issuer);
        for (parent, child) in [
            (&controller, &aggregator),
            (&aggregator, &aggregator),
            (&aggregator, &service),
        ] {
            let met = parent.meet(child).await;
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

/// A faulty child, the labels at the parent and at the child, and a part of each text. An alert is
/// the same for several faults.
const FAULTS_OF_CHILDREN: &str = "
    none | no_certificate | no_certificate | give it tls.crt | asks for one
    expired | expired | expired | renew it | renew it
    early | not_yet_valid | expired | clocks | clocks
    authority | unknown_authority | unknown_authority | by an authority | by an authority
    authority of other name | unknown_authority | unknown_authority | by an authority | by an authority
    domain | foreign_domain | foreign_domain | trust domain | trust domain
    no name | no_identity | foreign_domain | has no identity | its log
    web | no_identity | foreign_domain | has no identity |
    other path | no_identity | foreign_domain | /plimsoll/ |
    two | no_identity | foreign_domain | 2 identities |
    usage | wrong_usage | wrong_usage | client authentication | usage
";
const FAULTS_OF_PARENTS: &str = "
    expired | expired | expired | | renew it
    early | expired | not_yet_valid | | clocks
    authority | unknown_authority | unknown_authority | | by an authority
    authority of other name | unknown_authority | unknown_authority | | by an authority
    domain | foreign_domain | foreign_domain | | trust domain
    no name | foreign_domain | no_identity | | has no identity
    usage | wrong_usage | wrong_usage | | server authentication
";

#[tokio::test]
async fn unacceptable_certificates_are_named_at_both_ends() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = pair(&authority);
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
    let controller = "spiffe://fleet.example/plimsoll/controller";
    let no_client = Request {
        client: false,
        ..usual.clone()
    };
    let no_server = Request {
        server: false,
        ..usual.clone()
    };
    let no_certificate = {
        let mut config = lenient.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let at_parent = [
        ("none", no_certificate),
        ("expired", child_of(valid(Validity::ended()))),
        ("early", child_of(valid(Validity::to_come()))),
        ("authority", stranger(&same_name).0),
        ("authority of other name", stranger(&other_name).0),
        ("domain", child_of(uris(&[foreign]))),
        ("no name", child_of(uris(&[]))),
        ("web", child_of(uris(&["https://a.example"]))),
        ("other path", child_of(uris(&["spiffe://fleet.example/a"]))),
        ("two", child_of(uris(&[&usual.uris[0], controller]))),
        ("usage", child_of(no_client)),
    ];
    let at_child = [
        ("expired", parent_of(valid(Validity::ended()))),
        ("early", parent_of(valid(Validity::to_come()))),
        ("authority", stranger(&same_name).1),
        ("authority of other name", stranger(&other_name).1),
        ("domain", parent_of(uris(&[foreign]))),
        ("no name", parent_of(uris(&[]))),
        ("usage", parent_of(no_server)),
    ];
    let faults = FAULTS_OF_CHILDREN.trim().lines();
    assert_eq!(faults.clone().count(), at_parent.len());
    for ((name, child), line) in at_parent.into_iter().zip(faults) {
        check(name, own_parent(), child, line).await;
    }
    let faults = FAULTS_OF_PARENTS.trim().lines();
    assert_eq!(faults.clone().count(), at_child.len());
    for ((name, parent), line) in at_child.into_iter().zip(faults) {
        check(name, parent, own_child(), line).await;
    }
}

/// Connects a pair, and compares the labels and texts of both ends with a line of a table.
async fn check(name: &str, parent: Arc<ServerConfig>, child: Arc<ClientConfig>, line: &str) {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [named, label, of_child, text, text_of_child] = cells[..] else {
        panic!("{line}");
    };
    assert_eq!(named, name);
    let met = meet(parent, child).await;
    assert_eq!(met.labels(), (label, of_child), "{name}: {met:?}");
    let (at_parent, at_child) = (met.at_parent.unwrap_err(), met.at_child.unwrap_err());
    for (failure, text) in [(at_parent, text), (at_child, text_of_child)] {
        assert!(failure.to_string().contains(text), "{name}: {failure}");
        assert!(
            HandshakeFailure::LABELS.contains(&failure.label()),
            "{name}"
        );
        assert!(failure.to_string().len() < 1_000, "{name}: {failure}");
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
    let (parent, child) = pair(&authority);
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
    let (parent, child) = pair(&authority);
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
