//! Admin ports beyond loopback over TLS, with tokens of the three roles, by the real commands; and
//! files of tokens, authorities and keys that break meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_testing::fleet::{controller_in, metric, policy};
use plimsoll_testing::process::{FREE_PORT, Process, add_token, outcome};
use plimsoll_testing::turns::{IDLE, turn};
use plimsoll_tls::rustls::pki_types::ServerName;
use plimsoll_tls::testing::Authority;
use plimsoll_tls::tokio_rustls::TlsConnector;
use plimsoll_tls::{Tier, operator_client};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::tiers::{DOMAIN, Files, certs, controller};
use crate::operators::kill::own_address;

const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

/// A controller with an admin port for other machines, and the operators' files.
struct Remote {
    files: Files,
    controller: Process,
    url: String,
    ca: PathBuf,
}

impl Remote {
    /// `None` on a machine that only has loopback.
    fn start() -> Option<Self> {
        let own = own_address("tls::admin")?;
        let (files, authority) = (Files::new(), Authority::new(DOMAIN));
        let certificates = files.issue("controller", &authority, controller());
        for role in ROLES {
            add_token(&files.path(""), role, role);
        }
        let tokens = files.path("tokens").display().to_string();
        let policy = policy(100, "enforce", false);
        fs::write(files.path("policy.yaml"), policy).unwrap();
        let trust = [&["--tokens", &tokens], &certs(&certificates)[..]].concat();
        let controller = controller_in(&files.path(""), FREE_PORT, "0.0.0.0:0", &trust);
        let url = format!(
            "https://{}",
            SocketAddr::new(own, controller.address("admin").port())
        );
        let ca = certificates.join("ca.crt");
        Some(Self {
            files,
            controller,
            url,
            ca,
        })
    }

    fn command(&self, args: &[&str], role: &str) -> (i32, String) {
        let (ca, token) = (text(&self.ca), self.files.path(role));
        let trust = ["--ca", ca, "--token-file", text(&token)];
        outcome(&[args, &["--controller", &self.url], &trust].concat())
    }

    fn metrics(&self) -> String {
        self.get("/metrics", "")
    }

    fn get(&self, path: &str, headers: &str) -> String {
        let address: SocketAddr = self.url.strip_prefix("https://").unwrap().parse().unwrap();
        let connector = TlsConnector::from(Arc::new(
            operator_client(&self.ca, Tier::Controller).unwrap(),
        ));
        let answered = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let mut stream = connector
                .connect(ServerName::from(address.ip()), stream)
                .await
                .unwrap();
            let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n{headers}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        Runtime::new().unwrap().block_on(answered)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn operators_use_remote_admin_ports_by_role() {
    let _turn = turn(IDLE);
    let Some(remote) = Remote::start() else {
        return;
    };
    let kill = ["kill", "on", "--reason", "it refuses paying callers"];
    let release = ["apply", "--ack", "0123456789abcdef"];
    // The rights of each role, and the role that the refusal names.
    for (role, args, needed) in [
        ("viewer", &["rollout", "status"][..], None),
        ("viewer", &kill, Some("operator")),
        ("viewer", &release, Some("admin")),
        ("operator", &["rollout", "status"], None),
        ("operator", &kill, None),
        ("operator", &release, Some("admin")),
        ("admin", &kill, None),
    ] {
        let (code, output) = remote.command(args, role);
        match needed {
            None => assert_eq!(code, 0, "{role}: {args:?}: {output}"),
            Some(needed) => {
                let names =
                    output.contains(&format!("needs the role {needed}")) && output.contains(role);
                assert!(code == 1 && names, "{role}: {args:?}: {output}");
            }
        }
    }
    let (_, output) = remote.command(&release, "admin");
    assert!(
        !output.contains("role"),
        "an admin's command is refused for another reason: {output}"
    );
    let (_, output) = remote.command(&["kill", "status", "--output", "json"], "viewer");
    let status: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        status["fleet"]["command"]["by"], "admin",
        "the name of the token: {status}"
    );

    let refused = metric(
        &remote.metrics(),
        "plimsoll_admin_refused_total",
        "reason=\"role\"",
    );
    assert_eq!(refused, 3.0);
    assert!(
        remote.get("/status", "").starts_with("HTTP/1.0 401 "),
        "no token"
    );
    assert!(
        remote.get("/healthz", "").starts_with("HTTP/1.0 200 "),
        "health needs no token"
    );
    let secrets = ROLES.map(|role| fs::read_to_string(remote.files.path(role)).unwrap());
    for line in remote.controller.log() {
        assert!(
            secrets.iter().all(|secret| !line.contains(secret.trim())),
            "{line}"
        );
    }
}
