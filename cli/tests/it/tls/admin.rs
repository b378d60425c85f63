//! Admin ports beyond loopback over TLS, with tokens of the three roles, by the real commands; and files of tokens,
//! authorities and keys that break meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_tls::rustls::pki_types::ServerName;
use plimsoll_tls::testing::Authority;
use plimsoll_tls::tokio_rustls::TlsConnector;
use plimsoll_tls::{Tier, operator_client};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::files::{DAMAGE, mend};
use super::tiers::{DOMAIN, Files, certs, controller, logged};
use crate::fleet::{TENANTS, metric, policy};
use crate::kill::own_address;
use crate::process::{Process, run, until};
use crate::processes::skipped;
use crate::turns::{IDLE, turn};

const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

/// A controller whose admin port is reached from other machines, and what an operator has.
struct Remote {
    files: Files,
    controller: Process,
    url: String,
    ca: PathBuf,
}

impl Remote {
    /// `None` on a machine that has loopback alone.
    fn start() -> Option<Self> {
        let own = own_address()?;
        let (files, authority) = (Files::new(), Authority::new(DOMAIN));
        let certificates = files.issue("controller", &authority, controller());
        let path = |name: &str| files.path(name).display().to_string();
        for role in ROLES {
            let (tokens, token) = (path("tokens"), path(role));
            let ended = run(&["tokens", "add", role, "--role", role, "--file", &tokens, "--out", &token]);
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        }
        fs::write(path("policy.yaml"), policy(100, "enforce", false)).unwrap();
        fs::write(path("tenants.yaml"), TENANTS).unwrap();
        let of_files =
            ["--policy", &path("policy.yaml"), "--state-dir", &path("state"), "--tokens", &path("tokens")];
        let ports = ["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"];
        let controller =
            Process::start(&[&["controller"], &of_files[..], &ports, &certs(&certificates)].concat());
        let url = format!("https://{}", SocketAddr::new(own, controller.address("admin").port()));
        let ca = certificates.join("ca.crt");
        Some(Self { files, controller, url, ca })
    }

    /// Runs a command at the controller with the token of a role.
    fn command(&self, args: &[&str], role: &str) -> (Option<i32>, String) {
        self.command_at(
            &self.url,
            args,
            &["--ca", text(&self.ca), "--token-file", text(&self.files.path(role))],
        )
    }

    fn command_at(&self, url: &str, args: &[&str], trust: &[&str]) -> (Option<i32>, String) {
        let ended = run(&[args, &["--controller", url], trust].concat());
        (ended.status.code(), String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap())
    }

    fn metrics(&self) -> String {
        self.get("/metrics", "")
    }

    /// The answer to a GET over TLS.
    fn get(&self, path: &str, headers: &str) -> String {
        let address: SocketAddr = self.url.strip_prefix("https://").unwrap().parse().unwrap();
        let connector = TlsConnector::from(Arc::new(operator_client(&self.ca, Tier::Controller).unwrap()));
        let answered = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let mut stream = connector.connect(ServerName::from(address.ip()), stream).await.unwrap();
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
fn operators_use_an_admin_port_beyond_loopback_by_the_role_of_their_token() {
    let _turn = turn(IDLE);
    let Some(remote) = Remote::start() else {
        return skipped(
            "operators_use_an_admin_port_beyond_loopback: this machine has only loopback addresses",
        );
    };
    let kill = ["kill", "on", "--reason", "it refuses paying callers"];
    let release = ["apply", "--ack", "0123456789abcdef"];
    // What each role may do, and the role that the refusal names.
    for (role, args, needed) in [
        ("viewer", &["status"][..], None),
        ("viewer", &kill, Some("operator")),
        ("viewer", &release, Some("admin")),
        ("operator", &["status"], None),
        ("operator", &kill, None),
        ("operator", &release, Some("admin")),
        ("admin", &kill, None),
    ] {
        let (code, output) = remote.command(args, role);
        match needed {
            None => assert_eq!(code, Some(0), "{role}: {args:?}: {output}"),
            Some(needed) => {
                let names = output.contains(&format!("needs the role {needed}")) && output.contains(role);
                assert!(code == Some(1) && names, "{role}: {args:?}: {output}");
            }
        }
    }
    let (_, output) = remote.command(&release, "admin");
    assert!(!output.contains("role"), "an admin's command is refused for another reason: {output}");
    let (_, output) = remote.command(&["kill", "status", "--output", "json"], "viewer");
    let status: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(status["fleet"]["command"]["by"], "admin", "the name of the token: {status}");

    let refused = metric(&remote.metrics(), "plimsoll_admin_refused_total", "reason=\"role\"");
    assert_eq!(refused, 3.0);
    assert!(remote.get("/status", "").starts_with("HTTP/1.0 401 "), "no token");
    assert!(remote.get("/healthz", "").starts_with("HTTP/1.0 200 "), "health needs no token");
    let secrets = ROLES.map(|role| fs::read_to_string(remote.files.path(role)).unwrap());
    for line in remote.controller.log() {
        assert!(secrets.iter().all(|secret| !line.contains(secret.trim())), "{line}");
    }
}

#[test]
fn command_that_cannot_trust_its_connection_sends_no_token_and_names_the_remedy() {
    let _turn = turn(IDLE);
    let Some(remote) = Remote::start() else {
        return skipped("command_that_cannot_trust_its_connection: this machine has only loopback addresses");
    };
    let (ca, token) = (text(&remote.ca).to_owned(), text(&remote.files.path("admin")).to_owned());
    let secret = fs::read_to_string(&token).unwrap().trim().to_owned();
    let foreign = remote.files.issue("foreign", &Authority::new(DOMAIN), controller()).join("ca.crt");
    let shared = text(&remote.files.path("shared")).to_owned();
    fs::copy(&token, &shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o644)).unwrap();
    let plaintext = remote.url.replace("https://", "http://");
    let https = remote.url.clone();
    let mut cases = vec![
        ("plaintext", plaintext.as_str(), ca.clone(), token.clone(), "https://".to_owned()),
        ("a foreign authority", &https, text(&foreign).to_owned(), token.clone(), text(&foreign).to_owned()),
        ("a token file that others read", &https, ca.clone(), shared, "chmod 600".to_owned()),
    ];
    for (what, damage) in DAMAGE {
        for (of, good) in [("ca", &ca), ("token", &token)] {
            let path = remote.files.path(&format!("{what} as {of}"));
            fs::copy(good, &path).unwrap();
            damage(&path);
            let damaged = text(&path).to_owned();
            let (ca, token) =
                if of == "ca" { (damaged.clone(), token.clone()) } else { (ca.clone(), damaged.clone()) };
            cases.push((what, &https, ca, token, damaged));
        }
    }
    for (what, url, ca, token, named) in cases {
        let (code, output) = remote.command_at(url, &["status"], &["--ca", &ca, "--token-file", &token]);
        assert!(matches!(code, Some(1 | 2)), "{what}: {output}");
        assert!(output.contains(&named), "{what} does not name {named}: {output}");
        assert!(!output.contains(&secret), "{what}: {output}");
    }
    let (code, output) = remote.command_at(&https, &["status"], &["--ca", &ca]);
    assert!(code == Some(1) && output.contains("--token-file"), "no token: {output}");
    // Nothing but plaintext and the foreign authority came so far as to a handshake that failed.
    let page = remote.metrics();
    let failed = |reason: &str| {
        let label = format!("port=\"admin\",reason=\"{reason}\"");
        metric(&page, "plimsoll_handshakes_failed_total", &label)
    };
    assert_eq!(failed("unknown_authority"), 1.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_admin_refused_total", "reason=\"no_token\""), 1.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_admin_refused_total", ""), 1.0, "no damaged token was sent: {page}");
}

#[test]
fn damaged_tokens_file_leaves_the_earlier_tokens_in_force_until_it_is_mended() {
    let _turn = turn(IDLE);
    let Some(remote) = Remote::start() else {
        return skipped("damaged_tokens_file: this machine has only loopback addresses");
    };
    let path = remote.files.path("tokens");
    let good = fs::read(&path).unwrap();
    let until_refused = |wanted: f64, what: &str| {
        until(what, || (metric(&remote.metrics(), "plimsoll_tokens_refused", "") == wanted).then_some(()));
    };
    for (what, damage) in DAMAGE {
        damage(&path);
        until_refused(1.0, &format!("{what} to be refused"));
        logged(&remote.controller, &[text(&path), "refused"]);
        let (code, output) = remote.command(&["kill", "on", "--reason", what], "operator");
        assert_eq!(code, Some(0), "{what}: {output}");
        mend(&path, &good);
        until_refused(0.0, &format!("the file to be mended after {what}"));
    }
    // A token that is removed is refused.
    let ended = run(&["tokens", "remove", "operator", "--file", text(&path)]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    until("the removed token to be refused", || {
        let (code, output) = remote.command(&["kill", "on", "--reason", "removed"], "operator");
        (code == Some(1) && output.contains("token")).then_some(())
    });
    assert_eq!(remote.command(&["status"], "viewer").0, Some(0));
}
