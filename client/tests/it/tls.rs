//! A limiter over mutual TLS: its certificate expires, is renewed, or is another's, and decisions go on.

use std::path::Path;
use std::time::Duration;

use plimsoll_client::{BuildError, Health, Limiter, LimiterBuilder, Metrics};
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{Epoch, Terms};
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_tls::Certificates;
use plimsoll_tls::testing::{Authority, Validity};
use prometheus::{Registry, TextEncoder};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::parent::{ALL, Aggregator, at_ratio};

const PATIENCE: Duration = Duration::from_secs(90);
const DAY: Duration = Duration::from_secs(86_400);

fn zone(name: &str) -> Zone {
    Zone::new(name).unwrap()
}

fn service_of(zone_name: &str, service: &str) -> PeerRole {
    PeerRole::Service {
        zone: zone(zone_name),
        service: Name::new(service).unwrap(),
    }
}

fn aggregator_of(zone_name: &str) -> PeerRole {
    PeerRole::Aggregator {
        zone: zone(zone_name),
    }
}

struct Zonal {
    authority: Authority,
    files: TempDir,
    aggregator: Aggregator,
}

impl Zonal {
    async fn start() -> Self {
        Self::with_aggregator(aggregator_of("default")).await
    }

    async fn with_aggregator(role: PeerRole) -> Self {
        let (authority, files) = (Authority::new("test.example"), tempfile::tempdir().unwrap());
        let directory = files.path().join("aggregator");
        authority.write(&directory, role, Validity::lasting(DAY));
        let certificates = Certificates::open(&directory).unwrap();
        let aggregator = Aggregator::start(|service| service.secured(certificates)).await;
        Self {
            authority,
            files,
            aggregator,
        }
    }

    fn certify(&self, validity: Validity) {
        self.authority
            .write(&self.directory(), service_of("default", "shop"), validity);
    }

    fn directory(&self) -> std::path::PathBuf {
        self.files.path().join("shop")
    }

    fn address(&self) -> String {
        format!("https://{}", self.aggregator.address)
    }

    fn builder(&self) -> LimiterBuilder {
        let builder = Limiter::builder("shop").aggregator(&self.address());
        builder.certificates(self.directory())
    }

    fn spawn(&self, builder: LimiterBuilder) -> Limiter {
        let (limiter, feed) = builder.build_detached().unwrap();
        limiter.bucket("api").unwrap();
        tokio::spawn(feed.run(self.aggregator.stop.child_token()));
        limiter
    }

    fn post(&self, units: u32) -> Epoch {
        let terms = Terms {
            mode: Mode::Enforce,
            ..Terms::default()
        };
        let values = [("default", at_ratio(units))];
        self.aggregator.post("api", terms, &values)
    }
}

async fn until(limiter: &Limiter, what: &str, wanted: impl Fn(&Health) -> bool) {
    let wait = async {
        while !wanted(&limiter.health()) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(PATIENCE, wait).await.is_err() {
        panic!("{what}: {:?}", limiter.health());
    }
}

fn is_expired(health: &Health) -> bool {
    health
        .certificate
        .as_ref()
        .is_some_and(|certificate| certificate.is_expired)
}

fn admits(limiter: &Limiter) -> usize {
    (0..1_000)
        .filter(|_| {
            limiter
                .check(&plimsoll_client::Request::new("api", "acme"))
                .is_admit()
        })
        .count()
}

fn page(limiter: &Limiter) -> String {
    let registry = Registry::new();
    registry.register(Box::new(Metrics::new(limiter))).unwrap();
    TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_leaves_the_service_deciding() {
    let zonal = Zonal::start().await;
    zonal.certify(Validity::lasting(Duration::from_secs(5)));
    let limiter = zonal.spawn(zonal.builder());
    zonal.aggregator.applied(zonal.post(ALL)).await;
    assert_eq!(admits(&limiter), 0);
    let health = limiter.health();
    assert!(
        health.refused.is_empty() && !is_expired(&health),
        "{health:?}"
    );

    until(
        &limiter,
        "the certificate expires and is refused",
        |health| {
            is_expired(health) && health.connected == 0 && health.refused.contains_key("expired")
        },
    )
    .await;
    let opened = zonal.post(0);
    assert_eq!(admits(&limiter), 0, "the last directives stay in force");
    let text = page(&limiter);
    assert!(
        text.contains("plimsoll_feed_refused{reason=\"expired\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("plimsoll_feed_connected 0\n"), "{text}");
    assert!(
        text.contains("plimsoll_certificate_not_after_timestamp_seconds "),
        "{text}"
    );

    zonal.certify(Validity::lasting(DAY));
    zonal.aggregator.applied(opened).await;
    assert_eq!(admits(&limiter), 1_000);
    until(&limiter, "the connection is trusted again", |health| {
        !is_expired(health) && health.connected == 1 && health.refused.is_empty()
    })
    .await;
    assert!(page(&limiter).contains("plimsoll_feed_refused{reason=\"expired\"} 0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_service_decides_by_its_cache() {
    let zonal = Zonal::start().await;
    let cache = zonal.files.path().join("directives");
    zonal.certify(Validity::lasting(DAY));
    let (limiter, feed) = zonal
        .builder()
        .directive_cache(&cache)
        .build_detached()
        .unwrap();
    limiter.bucket("api").unwrap();
    let running = feed.spawn().unwrap();
    zonal.aggregator.applied(zonal.post(ALL)).await;
    assert_eq!(running.shutdown().await.unreported, 0);
    drop(limiter);

    zonal.certify(Validity::ended());
    let limiter = zonal.spawn(zonal.builder().directive_cache(&cache));
    until(
        &limiter,
        "the connection is refused, and the cached directives apply",
        |health| {
            is_expired(health) && health.refused.contains_key("expired") && admits(&limiter) == 0
        },
    )
    .await;
    let opened = zonal.post(0);
    assert_eq!(admits(&limiter), 0);

    zonal.certify(Validity::lasting(DAY));
    zonal.aggregator.applied(opened).await;
    assert_eq!(admits(&limiter), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_aggregator_certificate_is_refused_with_reason() {
    for (role, reason) in [
        (aggregator_of("other"), "forbidden"),
        (service_of("default", "shop"), "forbidden"),
        (PeerRole::Controller, "forbidden"),
    ] {
        let zonal = Zonal::with_aggregator(role.clone()).await;
        zonal.certify(Validity::lasting(DAY));
        let limiter = zonal.spawn(zonal.builder());
        let what = format!("an aggregator with the certificate of {role:?}");
        until(&limiter, &what, |health| {
            health.refused.contains_key(reason)
        })
        .await;
        assert_eq!(zonal.aggregator.offered(), 0);
        assert_eq!(admits(&limiter), 1_000);
    }
    // Another authority, of the same name.
    let zonal = Zonal::start().await;
    let other = Authority::new("test.example");
    other.write(
        &zonal.directory(),
        service_of("default", "shop"),
        Validity::lasting(DAY),
    );
    let limiter = zonal.spawn(zonal.builder());
    until(&limiter, "an aggregator of another authority", |health| {
        health.refused.contains_key("unknown_authority")
    })
    .await;
    // Plaintext where TLS is expected.
    let plain = Aggregator::start(|service| service).await;
    let builder = Limiter::builder("shop").aggregator(&format!("https://{}", plain.address));
    let limiter = zonal.spawn(builder.certificates(zonal.directory()));
    until(&limiter, "an aggregator in plaintext", |health| {
        health.refused.contains_key("not_tls")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_aggregator_name_uses_tls() {
    let zonal = Zonal::start().await;
    zonal.certify(Validity::lasting(DAY));
    let address = format!("dns://localhost:{}", zonal.aggregator.address.port());
    let builder = || Limiter::builder("shop").aggregator(&address);
    let limiter = zonal.spawn(builder().certificates(zonal.directory()));
    zonal.aggregator.applied(zonal.post(ALL)).await;
    assert_eq!(admits(&limiter), 0);
    let endpoint = format!(
        "plimsoll_endpoint_connected{{endpoint=\"{}\"}} 1\n",
        zonal.aggregator.address
    );
    assert!(page(&limiter).contains(&endpoint), "{}", page(&limiter));
    let plain = zonal.spawn(builder());
    assert_eq!(plain.health().certificate, None);
}

fn built(directory: &Path) -> BuildError {
    let builder = Limiter::builder("shop").aggregator("https://127.0.0.1:7410");
    builder
        .certificates(directory)
        .build_detached()
        .err()
        .unwrap()
}

#[test]
fn mismatched_certificate_refusal_shows_both_identities() {
    let (authority, files) = (Authority::new("test.example"), tempfile::tempdir().unwrap());
    for (role, id) in [
        (
            PeerRole::Controller,
            "spiffe://test.example/plimsoll/controller",
        ),
        (
            aggregator_of("default"),
            "spiffe://test.example/plimsoll/zone/default/aggregator",
        ),
        (
            service_of("other", "shop"),
            "spiffe://test.example/plimsoll/zone/other/service/shop",
        ),
        (
            service_of("default", "shop2"),
            "spiffe://test.example/plimsoll/zone/default/service/shop2",
        ),
    ] {
        authority.write(files.path(), role, Validity::lasting(DAY));
        let error = built(files.path());
        let text = error.to_string();
        assert!(
            matches!(error, BuildError::WrongCertificate { .. }),
            "{text}"
        );
        for word in [
            id,
            "spiffe://test.example/plimsoll/zone/default/service/shop",
            "LimiterBuilder::certificates",
        ] {
            assert!(text.contains(word), "{word} is not in: {text}");
        }
    }
}

#[test]
fn missing_file_refusal_names_the_method() {
    let (authority, files) = (Authority::new("test.example"), tempfile::tempdir().unwrap());
    let missing = files.path().join("missing");
    let text = built(&missing).to_string();
    for word in [missing.to_str().unwrap(), "LimiterBuilder::certificates"] {
        assert!(text.contains(word), "{text}");
    }
    authority.write(
        files.path(),
        service_of("default", "shop"),
        Validity::lasting(DAY),
    );
    let builder = Limiter::builder("shop:api").aggregator("https://127.0.0.1:7410");
    let error = builder
        .certificates(files.path())
        .build_detached()
        .err()
        .unwrap();
    assert!(
        matches!(error, BuildError::NoIdentity(_)) && error.to_string().contains("shop:api"),
        "{error}"
    );
}
