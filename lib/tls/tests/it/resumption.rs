//! Resumed sessions: a storm of reconnections is cheap, and an expired certificate or removed
//! authority is not trusted again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::rustls::ClientConfig;
use plimsoll_tls::rustls::HandshakeKind::{self, Full, Resumed};
use plimsoll_tls::rustls::client::Resumption;
use plimsoll_tls::rustls::pki_types::ServerName;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::tokio_rustls::{TlsAcceptor, TlsConnector};
use plimsoll_tls::{Certificates, Tier, operator_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::AbortHandle;

use crate::ends::{DOMAIN, Process, aggregator, child_with, meet, pair, service};

/// Follows the files of a process until the end of the test.
struct Following(AbortHandle);

impl Following {
    fn new(certificates: &Certificates) -> Self {
        let certificates = certificates.clone();
        Self(tokio::spawn(async move { certificates.follow().await }).abort_handle())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn kinds(parent: &Process, child: &Process) -> (HandshakeKind, HandshakeKind) {
    parent.meet(child).await.kinds()
}

async fn renewed(process: &Process, generation: u64) {
    let mut changes = process.certificates.changes();
    let waited = changes.wait_for(|number| *number == generation);
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .expect("the files are taken")
        .unwrap();
}

#[tokio::test]
async fn second_connection_resumes_with_the_same_identities() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = pair(&authority);
    assert_eq!(kinds(&parent, &child).await, (Full, Full));
    for _ in 0..20 {
        let met = parent.meet(&child).await;
        assert_eq!(
            met.kinds(),
            (Resumed, Resumed),
            "each connection brings a ticket for the next"
        );
        assert_eq!(met.at_parent.unwrap().0.id, child.certificates.id());
        assert_eq!(met.at_child.unwrap().0.id, parent.certificates.id());
    }
}

#[tokio::test]
async fn sessions_survive_only_certificate_rotation() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = pair(&authority);
    let _following = Following::new(&parent.certificates);
    assert_eq!(kinds(&parent, &child).await, (Full, Full));

    authority.write(parent.directory.path(), aggregator(), Validity::default());
    renewed(&parent, 2).await;
    assert_eq!(
        kinds(&parent, &child).await,
        (Resumed, Resumed),
        "the authorities are the same"
    );

    let both = authority.pem().to_owned() + Authority::new(DOMAIN).pem();
    std::fs::write(parent.path("ca.crt"), both).unwrap();
    renewed(&parent, 3).await;
    assert_eq!(
        kinds(&parent, &child).await,
        (Full, Full),
        "a changed ca.crt ends all sessions"
    );
    assert_eq!(kinds(&parent, &child).await, (Resumed, Resumed));
}

#[tokio::test]
async fn service_of_distrusted_authority_cannot_resume() {
    let (old, new) = (Authority::new(DOMAIN), Authority::new(DOMAIN));
    let (parent, child) = pair(&old);
    let _following = Following::new(&parent.certificates);
    assert_eq!(kinds(&parent, &child).await, (Full, Full));

    new.write(parent.directory.path(), aggregator(), Validity::default());
    renewed(&parent, 2).await;
    // The child still trusts the old authority; the parent's new certificate is not signed by it.
    let met = parent.meet(&child).await;
    assert_eq!(
        met.labels(),
        ("unknown_authority", "unknown_authority"),
        "{met:?}"
    );
}

#[tokio::test]
async fn authority_replaced_alone_ends_the_old() {
    let (old, new) = (Authority::new(DOMAIN), Authority::new(DOMAIN));
    let (parent, child) = pair(&old);
    let _following = Following::new(&parent.certificates);
    assert_eq!(kinds(&parent, &child).await, (Full, Full));

    std::fs::write(parent.path("ca.crt"), new.pem()).unwrap();
    renewed(&parent, 2).await;
    let met = parent.meet(&child).await;
    assert_eq!(met.at_parent.unwrap_err().label(), "unknown_authority");
    let renewed_child = child_with(
        &child.certificates.child(),
        &new.issue(&new.request(service(), Validity::default())),
    );
    let met = meet(parent.certificates.mutual_server(), renewed_child).await;
    assert_eq!(met.labels(), ("", ""), "the own leaf stays in use: {met:?}");
}

#[tokio::test]
async fn rotated_child_makes_a_new_session() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = pair(&authority);
    let _following = Following::new(&child.certificates);
    assert_eq!(kinds(&parent, &child).await, (Full, Full));
    authority.write(
        child.directory.path(),
        service(),
        Validity::lasting(Duration::from_secs(7_200)),
    );
    renewed(&child, 2).await;
    let met = parent.meet(&child).await;
    assert_eq!(met.kinds(), (Full, Full));
    assert_eq!(
        met.at_parent.unwrap().0.not_after,
        child.certificates.health().not_after,
        "of the new certificate"
    );
}

#[tokio::test]
async fn resumed_handshake_refuses_an_expired_certificate() {
    let authority = Authority::new(DOMAIN);
    let lifetime = Validity::lasting(Duration::from_secs(4));
    let issue = |role| authority.issue(&authority.request(role, lifetime));
    let short_parent = Process::with_leaf(&authority, &issue(aggregator()));
    let short_child = Process::with_leaf(&authority, &issue(service()));
    let (parent, child) = pair(&authority);
    assert_eq!(kinds(&short_parent, &child).await, (Full, Full));
    assert_eq!(kinds(&parent, &short_child).await, (Full, Full));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !short_child
        .certificates
        .health()
        .is_expired(SystemTime::now())
    {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let met = parent.meet(&short_child).await;
    assert_eq!(met.kinds(), (Resumed, Resumed));
    assert!(
        met.at_parent.unwrap().0.is_expired(SystemTime::now()),
        "its streams are ended by their driver"
    );
    assert!(!met.at_child.unwrap().0.is_expired(SystemTime::now()));

    let met = short_parent.meet(&child).await;
    let failure = met.at_child.unwrap_err();
    assert_eq!(failure.label(), "expired");
    assert!(failure.to_string().contains("renew it"), "{failure}");
}

#[tokio::test]
async fn admin_sessions_open_no_mutual_port() {
    let authority = Authority::new(DOMAIN);
    let aggregator = Process::new(&authority, aggregator());
    let (admin, mutual) = (
        aggregator.certificates.admin_server(),
        aggregator.certificates.mutual_server(),
    );
    let mut operator = operator_client(&aggregator.path("ca.crt"), Tier::Aggregator).unwrap();
    operator.resumption = Resumption::in_memory_sessions(256);
    let operator = Arc::new(operator);
    for _ in 0..2 {
        assert_eq!(
            admin_handshake(admin.clone(), operator.clone())
                .await
                .unwrap(),
            Full
        );
    }
    // The same sessions, offered with the protocol of the other port.
    let mut config = ClientConfig::clone(&operator);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let met = meet(mutual, Arc::new(config)).await;
    assert_eq!(
        met.labels(),
        ("no_certificate", "no_certificate"),
        "{met:?}"
    );
}

#[tokio::test]
async fn operator_accepts_only_the_commanded_tier() {
    let (authority, other) = (Authority::new(DOMAIN), Authority::new(DOMAIN));
    let controller = Process::new(&authority, PeerRole::Controller);
    let aggregator = Process::new(&authority, aggregator());
    let (no_identity, unknown) = (Some("no_identity"), Some("unknown_authority"));
    for (process, at_controllers, at_aggregators) in [
        (&controller, None, no_identity),
        (&aggregator, no_identity, None),
        (
            &Process::new(&authority, service()),
            no_identity,
            no_identity,
        ),
        (
            &Process::new(&other, PeerRole::Controller),
            unknown,
            unknown,
        ),
    ] {
        for (tier, refusal) in [
            (Tier::Controller, at_controllers),
            (Tier::Aggregator, at_aggregators),
        ] {
            let operator = Arc::new(operator_client(&controller.path("ca.crt"), tier).unwrap());
            let outcome = admin_handshake(process.certificates.admin_server(), operator).await;
            assert_eq!(
                outcome.err().as_deref(),
                refusal,
                "{process:?} in place of {tier:?}"
            );
        }
    }
}

/// Returns the kind of a handshake at an admin port, or the label of its failure.
async fn admin_handshake(
    parent: Arc<plimsoll_tls::rustls::ServerConfig>,
    child: Arc<ClientConfig>,
) -> Result<HandshakeKind, String> {
    let (above, below) = tokio::io::duplex(16 << 10);
    let name = ServerName::try_from("admin.example").unwrap();
    let parent = async {
        let mut stream = TlsAcceptor::from(parent).accept(above).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        std::io::Result::Ok(stream)
    };
    let child = async {
        let mut stream = TlsConnector::from(child).connect(name, below).await?;
        stream.read_u8().await?;
        std::io::Result::Ok(stream.get_ref().1.handshake_kind().unwrap())
    };
    let (_parent, kind) = tokio::join!(parent, child);
    kind.map_err(|error| {
        plimsoll_tls::HandshakeFailure::of(&error)
            .label()
            .to_owned()
    })
}
