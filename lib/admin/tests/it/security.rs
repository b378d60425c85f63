//! The flags of trust: refused starts, and their errors.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use plimsoll_admin::security::{ACCESS, CERTIFICATES, Opened, SecurityArgs, SecurityError};
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::stats::metrics::{families, text};
use plimsoll_tls::testing::{Authority, Validity};

const LOOPBACK: &str = "127.0.0.1:7400";
const LOOPBACK_6: &str = "[::1]:7400";
const MAPPED: &str = "[::ffff:127.0.0.1]:7400";
const ANYWHERE: &str = "0.0.0.0:7400";
const ANYWHERE_6: &str = "[::]:7400";
const PLAIN_PARENT: &str = "http://controller.example:7400";

fn zone(name: &str) -> Zone {
    Zone::new(name).unwrap()
}

fn aggregator(name: &str) -> PeerRole {
    PeerRole::Aggregator { zone: zone(name) }
}

fn certificates(directory: &Path, role: PeerRole) -> PathBuf {
    let path = directory.join("certs");
    fs::create_dir_all(&path).unwrap();
    Authority::new("test.example").write(&path, role, Validity::default());
    path
}

fn open(
    args: &SecurityArgs,
    role: PeerRole,
    ports: (&str, &str),
    parent: Option<&str>,
) -> Result<Opened, SecurityError> {
    let port = |text: &str| text.parse::<SocketAddr>().unwrap();
    args.open(role, port(ports.0), port(ports.1), parent)
}

#[test]
fn plaintext_beyond_loopback_needs_certificates_or_insecure() {
    let directory = tempfile::tempdir().unwrap();
    let certs = certificates(directory.path(), aggregator("a"));
    let plain = SecurityArgs::default();
    let insecure = SecurityArgs {
        insecure: true,
        ..SecurityArgs::default()
    };
    let trusted = SecurityArgs {
        certs: Some(certs.clone()),
        ..SecurityArgs::default()
    };
    let both = SecurityArgs {
        certs: Some(certs),
        insecure: true,
        ..SecurityArgs::default()
    };
    // The flag at fault without flags, and what is plaintext with `--insecure`.
    for (ports, fault) in [
        ((LOOPBACK, LOOPBACK), None),
        ((LOOPBACK_6, MAPPED), None),
        ((ANYWHERE, LOOPBACK), Some(("--listen", ANYWHERE))),
        ((ANYWHERE_6, LOOPBACK), Some(("--listen", ANYWHERE_6))),
        ((LOOPBACK, ANYWHERE), Some(("--admin", ANYWHERE))),
        ((LOOPBACK, "10.0.0.7:1"), Some(("--admin", "10.0.0.7:1"))),
    ] {
        match (open(&plain, aggregator("a"), ports, None), fault) {
            (Ok(opened), None) => assert!(opened.status().plaintext.is_empty(), "{ports:?}"),
            (Err(error), Some((flag, _))) => {
                let error = error.to_string();
                for part in [flag, "--certs", "--insecure"] {
                    assert!(error.contains(part), "{ports:?}: {error}");
                }
            }
            (opened, _) => panic!("{ports:?}: {opened:?}"),
        }
        for parent in [None, Some(PLAIN_PARENT)] {
            let opened = open(&insecure, aggregator("a"), ports, parent).unwrap();
            let port = fault.map(|(flag, address)| format!("{flag} {address}"));
            let parent = parent.map(|parent| format!("--controller {parent}"));
            let plaintext: Vec<String> = port.into_iter().chain(parent).collect();
            assert_eq!(opened.status().plaintext, plaintext, "{ports:?}");
        }
        for args in [&trusted, &both] {
            let opened = open(args, aggregator("a"), ports, None).unwrap();
            assert!(opened.status().plaintext.is_empty(), "{ports:?}");
        }
    }
}

#[test]
fn wrong_certificate_refusal_names_the_issuing_command() {
    let service = PeerRole::Service {
        zone: zone("a"),
        service: Name::new("shop").unwrap(),
    };
    let roles = [
        (PeerRole::Controller, "plimsoll/controller", "controller"),
        (
            aggregator("a"),
            "plimsoll/zone/a/aggregator",
            "aggregator --zone a",
        ),
        (
            aggregator("b"),
            "plimsoll/zone/b/aggregator",
            "aggregator --zone b",
        ),
        (service, "plimsoll/zone/a/service/shop", ""),
    ];
    for (held, found, _) in &roles {
        let directory = tempfile::tempdir().unwrap();
        let certs = certificates(directory.path(), held.clone());
        let args = SecurityArgs {
            certs: Some(certs.clone()),
            ..SecurityArgs::default()
        };
        for (role, expected, command) in &roles[..3] {
            match open(&args, role.clone(), (LOOPBACK, LOOPBACK), None) {
                Ok(opened) => {
                    assert_eq!(held, role);
                    let identity = opened.status().certificate.unwrap().identity;
                    assert_eq!(identity, format!("spiffe://test.example/{expected}"));
                }
                Err(error) => {
                    let error = error.to_string();
                    assert_ne!(held, role, "{error}");
                    let command = format!(
                        "plimsoll certs issue {command} --ca CA-DIR --out {}",
                        certs.display()
                    );
                    let names = [
                        &format!("spiffe://test.example/{found},"),
                        *expected,
                        &command,
                    ];
                    assert!(names.iter().all(|part| error.contains(*part)), "{error}");
                }
            }
        }
    }
}

#[test]
fn unnameable_zone_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let args = SecurityArgs {
        certs: Some(certificates(directory.path(), PeerRole::Controller)),
        ..SecurityArgs::default()
    };
    let error = open(&args, aggregator("eu/west:1"), (LOOPBACK, LOOPBACK), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("--zone: \"eu/west:1\" cannot be in a certificate"),
        "{error}"
    );
}

#[test]
fn unusable_files_are_named_with_their_flag() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let args = SecurityArgs {
        certs: Some(missing.clone()),
        ..SecurityArgs::default()
    };
    let error = open(&args, PeerRole::Controller, (LOOPBACK, LOOPBACK), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("--certs: ") && error.contains(missing.to_str().unwrap()),
        "{error}"
    );
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, "# none\nann admin\n").unwrap();
    let args = SecurityArgs {
        tokens: Some(tokens.clone()),
        ..SecurityArgs::default()
    };
    let error = open(&args, PeerRole::Controller, (LOOPBACK, LOOPBACK), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("--tokens: ") && error.contains("line 2: "),
        "{error}"
    );
    assert!(error.contains(tokens.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn status_and_metrics_show_replaced_files() {
    let directory = tempfile::tempdir().unwrap();
    let certs = certificates(directory.path(), PeerRole::Controller);
    let tokens = directory.path().join("tokens");
    let line = |name: &str| format!("{name} viewer sha256:{:064}\n", name.len());
    fs::write(&tokens, line("ann")).unwrap();
    let args = SecurityArgs {
        certs: Some(certs.clone()),
        tokens: Some(tokens.clone()),
        ..SecurityArgs::default()
    };
    let opened = open(&args, PeerRole::Controller, (LOOPBACK, LOOPBACK), None).unwrap();
    let follower = tokio::spawn(opened.clone().follow());
    let page = || text(&[families(&CERTIFICATES, &opened), families(&ACCESS, &opened)].concat());
    let has = |rows: &[&str]| {
        rows.iter()
            .all(|row| page().lines().any(|line| line == *row))
    };
    let good = [
        "plimsoll_certificate_untrusted 0",
        "plimsoll_certificates_refused 0",
        "plimsoll_tokens_refused 0",
        "plimsoll_plaintext 0",
    ];
    assert!(has(&good), "{}", page());
    assert!(
        has(&["plimsoll_admin_refused_total{reason=\"no_token\"} 0"]),
        "{}",
        page()
    );
    let status = opened.status();
    let certificate = status.certificate.unwrap();
    let row = format!(
        "plimsoll_certificate_not_after_timestamp_seconds {}",
        certificate.not_after_s
    );
    assert!(page().lines().any(|line| line == row), "{}", page());
    let begins = "plimsoll_certificate_not_before_timestamp_seconds ";
    assert!(page().lines().any(|line| line.starts_with(begins)));
    assert!(certificate.expires_in_s > 0.0 && certificate.refused.is_none());
    assert_eq!(status.tokens.unwrap().accepted, 1);

    fs::write(&tokens, "garbage").unwrap();
    let crt = fs::read(certs.join("tls.crt")).unwrap();
    fs::write(certs.join("tls.crt"), "garbage").unwrap();
    until(|| {
        has(&[
            "plimsoll_certificates_refused 1",
            "plimsoll_tokens_refused 1",
        ])
    })
    .await;
    let status = opened.status();
    assert!(
        status
            .certificate
            .unwrap()
            .refused
            .unwrap()
            .contains("tls.crt")
    );
    let held = status.tokens.unwrap();
    assert_eq!(held.accepted, 1);
    assert!(held.refused.unwrap().contains("line 1"));

    fs::write(&tokens, line("ann") + &line("benedict")).unwrap();
    fs::write(certs.join("tls.crt"), crt).unwrap();
    until(|| has(&good) && opened.status().tokens.unwrap().accepted == 2).await;

    // The authority is replaced, and the certificate is not.
    let trusted = fs::read(certs.join("ca.crt")).unwrap();
    fs::write(certs.join("ca.crt"), Authority::new("test.example").pem()).unwrap();
    until(|| has(&["plimsoll_certificate_untrusted 1"])).await;
    fs::write(certs.join("ca.crt"), trusted).unwrap();
    until(|| has(&good)).await;
    follower.abort();
}

async fn until(is_reached: impl Fn() -> bool) {
    let polls = async {
        while !is_reached() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), polls)
        .await
        .unwrap();
}
