//! `plimsoll certs` with the real binary: a CA and certificates from nothing, their files, their renewal, and the
//! errors of wrong arguments and files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::PeerRole;
use plimsoll_tls::Certificates;
use plimsoll_tls::testing::{Authority, Validity};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::process::{PATIENCE, run, until};

const DAY_S: i64 = 86_400;

/// Directories of a CA and of certificates that it issued.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A place with a CA.
    fn with_ca(extra: &[&str]) -> Self {
        let place = Self::new();
        place.succeed("certs init --dir ca", extra);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command, and returns its exit code with both outputs. Words after `--dir`, `--ca`, `--out`, `--peer`,
    /// `check` and `show` are names in this place.
    fn run(&self, line: &str, extra: &[&str]) -> (i32, String) {
        let mut args: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        for at in 1..args.len() {
            if ["--dir", "--ca", "--out", "--peer", "check", "show"].contains(&args[at - 1].as_str()) {
                args[at] = self.path(&args[at]).display().to_string();
            }
        }
        args.extend(extra.iter().map(|word| (*word).to_owned()));
        let output = run(&args);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    fn succeed(&self, line: &str, extra: &[&str]) -> String {
        let (code, text) = self.run(line, extra);
        assert_eq!(code, 0, "{line}: {text}");
        text
    }

    /// The certificates that `certs show` prints as JSON.
    fn shown(&self, name: &str) -> Vec<Value> {
        let text = self.succeed(&format!("certs show {name} --output json"), &[]);
        serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    /// The lines of a private key that are secret.
    fn secret_lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines().filter(|line| !line.starts_with("-----")).map(ToOwned::to_owned).collect()
    }
}

#[test]
fn ca_is_made_once_with_a_private_key_that_is_never_shown() {
    let place = Place::new();
    let text = place.succeed("certs init --dir new/ca --trust-domain shop.example --days 30", &[]);
    assert!(text.contains("shop.example") && text.contains("certs issue controller --ca "), "{text}");
    assert_eq!([place.mode("new"), place.mode("new/ca")], [0o700, 0o700]);
    assert_eq!([place.mode("new/ca/ca.key"), place.mode("new/ca/ca.crt")], [0o600, 0o644]);
    let key = place.secret_lines("new/ca/ca.key");
    let shown = place.succeed("certs show new/ca", &[]);
    assert!(
        shown.contains("identity   CA") && shown.contains("names      spiffe://shop.example\n"),
        "{shown}"
    );
    assert!(!key.is_empty() && key.iter().all(|line| !format!("{text}{shown}").contains(line)));

    let before = fs::read(place.path("new/ca/ca.crt")).unwrap();
    let (code, text) = place.run("certs init --dir new/ca", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("ca.key exists and is not overwritten") && text.contains("--force"), "{text}");
    assert_eq!(fs::read(place.path("new/ca/ca.crt")).unwrap(), before);
    place.succeed("certs init --dir new/ca --force", &[]);
    assert_ne!(fs::read(place.path("new/ca/ca.crt")).unwrap(), before);
    assert!(place.secret_lines("new/ca/ca.key") != key);
}

#[test]
fn issued_certificates_name_role_zone_and_service_and_pass_the_check() {
    let place = Place::with_ca(&[]);
    for (args, path) in [
        ("controller", "controller"),
        ("aggregator --zone eu-1a", "zone/eu-1a/aggregator"),
        ("service --zone eu-1a --service checkout", "zone/eu-1a/service/checkout"),
        ("quota", "quota"),
    ] {
        let identity = format!("spiffe://plimsoll.local/plimsoll/{path}");
        let out = format!("certs/{}", args.split(' ').next().unwrap());
        let text = place.succeed(&format!("certs issue {args} --ca ca --out {out}"), &[]);
        assert!(text.contains(&identity) && text.contains("--certs "), "{text}");
        assert_eq!(
            ["tls.crt", "tls.key", "ca.crt"].map(|file| place.mode(&format!("{out}/{file}"))),
            [0o644, 0o600, 0o644]
        );
        assert_eq!(
            fs::read(place.path(&format!("{out}/ca.crt"))).unwrap(),
            fs::read(place.path("ca/ca.crt")).unwrap()
        );
        let [leaf, ca] = &place.shown(&out)[..] else { panic!("a leaf and a CA") };
        assert_eq!(leaf["identity"], identity);
        assert_eq!((&leaf["ca"], &ca["ca"], &leaf["issuer"]), (&false.into(), &true.into(), &ca["subject"]));
        let left = leaf["seconds_left"].as_i64().unwrap();
        assert!((DAY_S - 3_600..=DAY_S).contains(&left), "{left}");
        for name in ["localhost", "127.0.0.1", "::1"] {
            assert!(leaf["names"].as_array().unwrap().contains(&name.into()), "{leaf}");
        }
        assert_eq!(leaf["sha256"].as_str().unwrap().len(), 32 * 3 - 1);
        let checked = place.succeed(&format!("certs check {out}"), &[]);
        assert_eq!(checked, format!("{identity}\nvalid\n"));
        let key = place.secret_lines(&format!("{out}/tls.key"));
        let shown = place.succeed(&format!("certs show {out}"), &[]);
        assert!(!key.is_empty() && key.iter().all(|line| !format!("{text}{shown}{checked}").contains(line)));
    }
    let line = "certs issue controller --ca ca --out other --host a.example,10.0.0.1 --host b.example";
    place.succeed(&format!("{line} --lifetime 7d --trust-domain x.example"), &[]);
    let leaf = &place.shown("other/tls.crt")[0];
    let names = ["spiffe://x.example/plimsoll/controller", "a.example", "10.0.0.1", "b.example"];
    assert_eq!(leaf["names"], Value::from(names.to_vec()));
    assert!(leaf["seconds_left"].as_i64().unwrap() > 6 * DAY_S, "{leaf}");
}

#[test]
fn certificate_of_minutes_begins_little_before_it_is_issued() {
    let place = Place::with_ca(&[]);
    place.succeed("certs issue controller --ca ca --out short --lifetime 2m", &[]);
    let health = Certificates::open(&place.path("short")).unwrap().health();
    assert_eq!(health.not_after.duration_since(health.not_before).unwrap(), Duration::from_secs(150));
}

#[test]
fn authorities_of_a_bundle_are_all_trusted_while_the_new_one_signs() {
    let place = Place::with_ca(&[]);
    place.succeed("certs issue aggregator --zone a --ca ca --out before", &[]);
    let earlier = fs::read_to_string(place.path("ca/ca.crt")).unwrap();
    place.succeed("certs init --dir ca --force", &[]);
    let bundle = earlier + &fs::read_to_string(place.path("ca/ca.crt")).unwrap();
    fs::write(place.path("ca/ca.crt"), &bundle).unwrap();
    place.succeed("certs issue controller --ca ca --out after", &[]);
    assert_eq!(fs::read_to_string(place.path("after/ca.crt")).unwrap(), bundle);
    let (code, text) = place.run("certs check after --peer before", &[]);
    assert!(code == 1 && text.contains("before: "), "only one end trusts both: {text}");
    fs::write(place.path("before/ca.crt"), &bundle).unwrap();
    place.succeed("certs check after --peer before", &[]);
}

#[test]
fn wrong_arguments_and_files_are_usage_errors_with_a_remedy() {
    let place = Place::with_ca(&["--days", "1"]);
    place.succeed("certs issue controller --ca ca --out good --lifetime 1h", &[]);
    let cut = "-----BEGIN CERTIFICATE-----\nAAAA";
    for (file, text) in [
        ("no-pem/ca.key", "-"),
        ("no-pem/ca.crt", "-"),
        ("cut/ca.key", "-----BEGIN PRIVATE KEY-----\nAAAA"),
        ("cut/ca.crt", cut),
        ("garbage/tls.crt", &format!("{cut}\n-----END CERTIFICATE-----\n")),
        ("garbage/tls.key", ""),
    ] {
        fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
        fs::write(place.path(file), text).unwrap();
    }
    fs::copy(place.path("ca/ca.crt"), place.path("garbage/ca.crt")).unwrap();
    fs::create_dir(place.path("mixed")).unwrap();
    fs::copy(place.path("ca/ca.crt"), place.path("mixed/ca.crt")).unwrap();
    fs::copy(place.path("good/tls.key"), place.path("mixed/ca.key")).unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    let issue = "certs issue controller --ca ca --out new";
    let missing = "certs issue controller --ca missing --out new";
    for (line, expected) in [
        (
            missing,
            "ca.key: No such file or directory (os error 2); `plimsoll certs init --dir DIR` makes a CA",
        ),
        ("certs issue controller --ca no-pem --out new", "no-pem/ca.key holds no private key in PEM"),
        ("certs issue controller --ca cut --out new", "cut/ca.key holds no private key in PEM"),
        ("certs issue controller --ca mixed --out new", "has no CA whose key is"),
        ("certs issue controller --ca ca --out ca", "is the key of a CA: give a directory of its own"),
        (
            "certs issue aggregator --zone a --ca ca --out good",
            "has the certificate of spiffe://plimsoll.local/plimsoll/controller: give",
        ),
        ("certs issue controller --ca ca", "--out <DIR>"),
        ("certs issue --ca ca --out new", "unexpected argument"),
        ("certs issue aggregator --ca ca --out new", "--zone <NAME>"),
        ("certs issue aggregator --zone a/b --ca ca --out new", "\"a/b\" cannot be in a certificate"),
        (
            "certs issue service --zone a --service b@c --ca ca --out new",
            "\"b@c\" cannot be in a certificate",
        ),
        (&format!("{issue} --lifetime 2d"), "give a shorter --lifetime"),
        (&format!("{issue} --lifetime 0s"), "give 1s to 366d"),
        (&format!("{issue} --lifetime soon"), "write it as 24h"),
        (&format!("{issue} --host https://a"), "neither a DNS name nor an IP address"),
        (&format!("{issue} --trust-domain Shop"), "lower-case letters"),
        ("certs init --dir ca2 --trust-domain a/b", "lower-case letters"),
        ("certs init --dir ca2 --days 0", "1..=3650"),
        ("certs show missing", "missing: No such file or directory"),
        ("certs show empty", "has neither tls.crt nor ca.crt"),
        ("certs show good/tls.key", "tls.key holds no certificate"),
        ("certs show no-pem/ca.key", "holds no certificate"),
        ("certs show garbage", "garbage/tls.crt: a certificate in it is invalid"),
        ("certs check missing", "missing/tls.crt: No such file or directory"),
        ("certs check ca", "ca/tls.crt: No such file or directory"),
        ("certs check garbage", "garbage/tls.crt: the certificate cannot be read"),
        ("certs check good --peer missing", "missing/tls.crt"),
    ] {
        let (code, text) = place.run(line, &[]);
        assert_eq!(code, 2, "{line}: {text}");
        assert!(text.contains(expected), "{line}: {text}");
        let key = place.secret_lines("good/tls.key");
        assert!(key.iter().all(|line| !text.contains(line)), "{line} shows a key");
    }
    assert!(!place.path("new").exists(), "a failed command left files");
    assert!(!place.path("ca2").exists(), "a failed command left files");
}

#[test]
fn check_finds_files_of_two_issuances_expiry_and_keys_that_others_can_read() {
    let place = Place::with_ca(&[]);
    place.succeed("certs issue controller --ca ca --out one", &[]);
    place.succeed("certs issue controller --ca ca --out two", &[]);
    let swap =
        |from: &str, file: &str, to: &str| fs::copy(place.path(from).join(file), place.path(to).join(file));
    fs::set_permissions(place.path("one/tls.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let text = place.succeed("certs check one", &[]);
    assert!(!text.contains("WARN"), "logged as well: {text}");
    assert!(text.contains("warning: all users have access") && text.contains("run `chmod 600 "), "{text}");
    swap("two", "tls.key", "one").unwrap();
    let (code, text) = place.run("certs check one", &[]);
    assert!(code == 2 && text.contains("one/tls.key: is not the key of the certificate"), "{code}: {text}");

    place.succeed("certs init --dir ca --force", &[]);
    fs::copy(place.path("ca/ca.crt"), place.path("two/ca.crt")).unwrap();
    let (code, text) = place.run("certs check two", &[]);
    assert!(
        code == 2 && text.contains("two/tls.crt: is not signed by an authority of ca.crt"),
        "{code}: {text}"
    );

    // Six parts of seven are over.
    fs::create_dir(place.path("short")).unwrap();
    let validity = Validity::lasting(Duration::from_secs(10));
    Authority::new("a.example").write(&place.path("short"), PeerRole::Controller, validity);
    let mut codes = vec![place.run("certs check short", &[])];
    until("the certificate to expire", || {
        let last = place.run("certs check short", &[]);
        let is_expired = last.0 == 1;
        codes.push(last);
        is_expired.then_some(())
    });
    let (_, expired) = codes.pop().unwrap();
    assert!(expired.contains("error: ") && expired.contains("short/tls.crt expired at "), "{expired}");
    for (code, text) in codes {
        assert!(code == 0 && text.contains("less than a quarter of its validity is left"), "{code}: {text}");
    }
    assert!(place.succeed("certs show short", &[]).contains(" ago\n"));

    fs::create_dir(place.path("to-come")).unwrap();
    Authority::new("a.example").write(&place.path("to-come"), PeerRole::Controller, Validity::to_come());
    let (code, text) = place.run("certs check to-come", &[]);
    assert!(
        code == 1 && text.contains("becomes valid at ") && text.contains("compare the clock"),
        "{code}: {text}"
    );
}

#[test]
fn check_with_a_peer_says_why_the_two_refuse_one_another() {
    let place = Place::with_ca(&[]);
    place.succeed("certs init --dir foreign", &[]);
    for (out, args) in [
        ("controller", "controller --ca ca"),
        ("a", "aggregator --zone a --ca ca"),
        ("b", "aggregator --zone b --ca ca"),
        ("service", "service --zone a --service s --ca ca"),
        ("other-domain", "aggregator --zone a --ca ca --trust-domain x.example"),
        ("other-ca", "aggregator --zone a --ca foreign"),
    ] {
        place.succeed(&format!("certs issue {args} --out {out}"), &[]);
    }
    for (dir, peer, refusal) in [
        ("controller", "a", None),
        ("a", "controller", None),
        ("a", "b", None),
        ("service", "a", None),
        ("a", "service", None),
        ("service", "b", Some("a service takes the aggregators of its zone")),
        ("service", "controller", Some("a service takes the aggregators of its zone")),
        ("controller", "service", Some("a service takes the aggregators of its zone")),
        ("service", "service", Some("may not direct")),
        ("controller", "controller", Some("may not direct")),
        ("service", "other-domain", Some("two trust domains")),
        ("controller", "other-ca", Some("not signed by an authority of ca.crt")),
    ] {
        let (code, text) = place.run(&format!("certs check {dir} --peer {peer}"), &[]);
        match refusal {
            None => assert!(
                code == 0 && text.ends_with("valid: each accepts the other\n"),
                "{dir}, {peer}: {text}"
            ),
            Some(cause) => assert!(code == 1 && text.contains(cause), "{dir}, {peer}: {code}: {text}"),
        }
        let document = place.run(&format!("certs check {dir} --peer {peer} --output json"), &[]).1;
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["valid"], refusal.is_none(), "{document}");
        assert_eq!(document["identities"].as_array().unwrap().len(), 2, "{document}");
    }
}

#[tokio::test]
async fn process_that_follows_a_directory_takes_certificates_issued_again() {
    let place = Place::with_ca(&[]);
    let issue = "certs issue aggregator --zone a --ca ca --out certs";
    place.succeed(&format!("{issue} --lifetime 1h"), &[]);
    let running = Certificates::open(&place.path("certs")).unwrap();
    let (mut changes, before) = (running.changes(), running.health());
    let followed = running.clone();
    let task = tokio::spawn(async move { followed.follow().await });
    // A later step may find the end of an earlier one, with the files of two issuances.
    for _ in 0..3 {
        place.succeed(issue, &[]);
        timeout(PATIENCE, changes.changed()).await.unwrap().unwrap();
    }
    let after = running.health();
    assert!(after.generation >= before.generation + 3, "{after:?}");
    assert!(after.not_after > before.not_after + Duration::from_secs(3_600), "{after:?}");
    assert!(after.not_after > SystemTime::now());

    // Another zone is another process: the old set stays, and says why, until the files are right again.
    place.succeed("certs issue aggregator --zone b --ca ca --out other", &[]);
    for name in ["ca.crt", "tls.key", "tls.crt"] {
        fs::copy(place.path("other").join(name), place.path("certs").join(name)).unwrap();
    }
    let refused = wait(&running, |health| health.refused.clone()).await;
    assert!(refused.contains("zone/b/aggregator"), "{refused}");
    fs::remove_file(place.path("certs/tls.crt")).unwrap();
    place.succeed(issue, &[]);
    wait(&running, |health| health.refused.is_none().then_some(())).await;
    assert_eq!(only_files(&place.path("certs")), ["ca.crt", "tls.crt", "tls.key"]);
    task.abort();
}

/// Polls the health of certificates until the closure returns a value.
async fn wait<T>(certificates: &Certificates, poll: impl Fn(&plimsoll_tls::Health) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(value) = poll(&certificates.health()) {
                return value;
            }
            tokio::time::sleep(crate::process::POLL).await;
        }
    };
    timeout(PATIENCE, found).await.unwrap()
}

fn only_files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
