//! `plimsoll certs` with the real binary: a CA and certificates from nothing, their files, their renewal, and the
//! errors of wrong arguments and files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::exchange::PeerRole;
use plimsoll_testing::process::{outcome, until_true};
use plimsoll_tls::Certificates;
use plimsoll_tls::testing::{Authority, Validity};
use tempfile::TempDir;

/// Directories of a CA and of certificates that it issued.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with_ca(extra: &[&str]) -> Self {
        let place = Self::new();
        place.succeed("certs init --dir ca", extra);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command, and returns its exit code with both outputs. Words after `--dir`, `--ca`,
    /// `--out` and `check` are names in this place.
    fn run(&self, line: &str, extra: &[&str]) -> (i32, String) {
        let mut args: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        for at in 1..args.len() {
            if ["--dir", "--ca", "--out", "check"].contains(&args[at - 1].as_str()) {
                args[at] = self.path(&args[at]).display().to_string();
            }
        }
        args.extend(extra.iter().map(|word| (*word).to_owned()));
        outcome(&args)
    }

    fn succeed(&self, line: &str, extra: &[&str]) -> String {
        let (code, text) = self.run(line, extra);
        assert_eq!(code, 0, "{line}: {text}");
        text
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    /// Returns the secret lines of a private key.
    fn secret_lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("-----"))
            .map(ToOwned::to_owned)
            .collect()
    }
}

#[test]
fn authority_is_created_once_with_hidden_key() {
    let place = Place::new();
    let text = place.succeed(
        "certs init --dir new/ca --trust-domain shop.example --days 30",
        &[],
    );
    assert!(
        text.contains("shop.example") && text.contains("certs issue controller --ca "),
        "{text}"
    );
    assert_eq!([place.mode("new"), place.mode("new/ca")], [0o700, 0o700]);
    assert_eq!(
        [place.mode("new/ca/ca.key"), place.mode("new/ca/ca.crt")],
        [0o600, 0o644]
    );
    let key = place.secret_lines("new/ca/ca.key");
    assert!(!key.is_empty() && key.iter().all(|line| !text.contains(line)));

    let before = fs::read(place.path("new/ca/ca.crt")).unwrap();
    let (code, text) = place.run("certs init --dir new/ca", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("ca.key exists and is not overwritten") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(fs::read(place.path("new/ca/ca.crt")).unwrap(), before);
    place.succeed("certs init --dir new/ca --force", &[]);
    assert_ne!(fs::read(place.path("new/ca/ca.crt")).unwrap(), before);
    assert!(place.secret_lines("new/ca/ca.key") != key);
}

#[test]
fn issued_certificates_pass_the_check() {
    let place = Place::with_ca(&[]);
    for (args, path) in [
        ("controller", "controller"),
        ("aggregator --zone eu-1a", "zone/eu-1a/aggregator"),
        (
            "service --zone eu-1a --service checkout",
            "zone/eu-1a/service/checkout",
        ),
        ("quota", "quota"),
    ] {
        let identity = format!("spiffe://plimsoll.local/plimsoll/{path}");
        let out = format!("certs/{}", args.split(' ').next().unwrap());
        let text = place.succeed(&format!("certs issue {args} --ca ca --out {out}"), &[]);
        assert!(
            text.contains(&identity) && text.contains("--certs "),
            "{text}"
        );
        assert_eq!(
            ["tls.crt", "tls.key", "ca.crt"].map(|file| place.mode(&format!("{out}/{file}"))),
            [0o644, 0o600, 0o644]
        );
        assert_eq!(
            fs::read(place.path(&format!("{out}/ca.crt"))).unwrap(),
            fs::read(place.path("ca/ca.crt")).unwrap()
        );
        let checked = place.succeed(&format!("certs check {out}"), &[]);
        assert_eq!(checked, format!("{identity}\nvalid\n"));
        let key = place.secret_lines(&format!("{out}/tls.key"));
        assert!(
            !key.is_empty()
                && key
                    .iter()
                    .all(|line| !format!("{text}{checked}").contains(line))
        );
    }
    let line =
        "certs issue controller --ca ca --out other --host a.example,10.0.0.1 --host b.example";
    place.succeed(
        &format!("{line} --lifetime 7d --trust-domain x.example"),
        &[],
    );
    let id = Certificates::open(&place.path("other"))
        .unwrap()
        .id()
        .to_string();
    assert_eq!(id, "spiffe://x.example/plimsoll/controller");
}

#[test]
fn bundle_trusts_every_authority_during_renewal() {
    let place = Place::with_ca(&[]);
    place.succeed("certs issue aggregator --zone a --ca ca --out before", &[]);
    let earlier = fs::read_to_string(place.path("ca/ca.crt")).unwrap();
    place.succeed("certs init --dir ca --force", &[]);
    let bundle = earlier + &fs::read_to_string(place.path("ca/ca.crt")).unwrap();
    fs::write(place.path("ca/ca.crt"), &bundle).unwrap();
    place.succeed("certs issue controller --ca ca --out after", &[]);
    assert_eq!(
        fs::read_to_string(place.path("after/ca.crt")).unwrap(),
        bundle
    );
    place.succeed("certs check after", &[]);
}

#[test]
fn wrong_certificate_arguments_give_a_remedy() {
    let place = Place::with_ca(&["--days", "1"]);
    place.succeed(
        "certs issue controller --ca ca --out good --lifetime 1h",
        &[],
    );
    let cut = "-----BEGIN CERTIFICATE-----\nAAAA";
    for (file, text) in [
        ("no-pem/ca.key", "-"),
        ("no-pem/ca.crt", "-"),
        ("cut/ca.key", "-----BEGIN PRIVATE KEY-----\nAAAA"),
        ("cut/ca.crt", cut),
        (
            "garbage/tls.crt",
            &format!("{cut}\n-----END CERTIFICATE-----\n"),
        ),
        ("garbage/tls.key", ""),
    ] {
        fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
        fs::write(place.path(file), text).unwrap();
    }
    fs::copy(place.path("ca/ca.crt"), place.path("garbage/ca.crt")).unwrap();
    fs::create_dir(place.path("mixed")).unwrap();
    fs::copy(place.path("ca/ca.crt"), place.path("mixed/ca.crt")).unwrap();
    fs::copy(place.path("good/tls.key"), place.path("mixed/ca.key")).unwrap();
    let issue = "certs issue controller --ca ca --out new";
    let missing = "certs issue controller --ca missing --out new";
    for (line, expected) in [
        (
            missing,
            "ca.key: No such file or directory (os error 2); `plimsoll certs init --dir DIR` makes a CA",
        ),
        (
            "certs issue controller --ca no-pem --out new",
            "no-pem/ca.key holds no private key in PEM",
        ),
        (
            "certs issue controller --ca cut --out new",
            "cut/ca.key holds no private key in PEM",
        ),
        (
            "certs issue controller --ca mixed --out new",
            "has no CA whose key is",
        ),
        (
            "certs issue controller --ca ca --out ca",
            "is the key of a CA: give a directory of its own",
        ),
        (
            "certs issue aggregator --zone a --ca ca --out good",
            "has the certificate of spiffe://plimsoll.local/plimsoll/controller: give",
        ),
        ("certs issue controller --ca ca", "--out <DIR>"),
        ("certs issue --ca ca --out new", "unexpected argument"),
        ("certs issue aggregator --ca ca --out new", "--zone <NAME>"),
        (
            "certs issue aggregator --zone a/b --ca ca --out new",
            "\"a/b\" cannot be in a certificate",
        ),
        (
            "certs issue service --zone a --service b@c --ca ca --out new",
            "\"b@c\" cannot be in a certificate",
        ),
        (
            &format!("{issue} --lifetime 2d"),
            "give a shorter --lifetime",
        ),
        (&format!("{issue} --lifetime 0s"), "give 1s to 366d"),
        (&format!("{issue} --lifetime soon"), "write it as 24h"),
        (
            &format!("{issue} --host https://a"),
            "neither a DNS name nor an IP address",
        ),
        (
            &format!("{issue} --trust-domain Shop"),
            "lower-case letters",
        ),
        (
            "certs init --dir ca2 --trust-domain a/b",
            "lower-case letters",
        ),
        ("certs init --dir ca2 --days 0", "1..=3650"),
        (
            "certs check missing",
            "missing/tls.crt: No such file or directory",
        ),
        ("certs check ca", "ca/tls.crt: No such file or directory"),
        (
            "certs check garbage",
            "garbage/tls.crt: the certificate cannot be read",
        ),
    ] {
        let (code, text) = place.run(line, &[]);
        assert_eq!(code, 2, "{line}: {text}");
        assert!(text.contains(expected), "{line}: {text}");
        let key = place.secret_lines("good/tls.key");
        assert!(
            key.iter().all(|line| !text.contains(line)),
            "{line} shows a key"
        );
    }
    assert!(!place.path("new").exists(), "a failed command left files");
    assert!(!place.path("ca2").exists(), "a failed command left files");
}

#[test]
fn check_finds_mixed_expired_and_exposed_files() {
    let place = Place::with_ca(&[]);
    place.succeed("certs issue controller --ca ca --out one", &[]);
    place.succeed("certs issue controller --ca ca --out two", &[]);
    let swap = |from: &str, file: &str, to: &str| {
        fs::copy(place.path(from).join(file), place.path(to).join(file))
    };
    fs::set_permissions(place.path("one/tls.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let text = place.succeed("certs check one", &[]);
    assert!(!text.contains("WARN"), "logged as well: {text}");
    assert!(
        text.contains("warning: all users have access") && text.contains("run `chmod 600 "),
        "{text}"
    );
    swap("two", "tls.key", "one").unwrap();
    let (code, text) = place.run("certs check one", &[]);
    assert!(
        code == 2 && text.contains("one/tls.key: is not the key of the certificate"),
        "{code}: {text}"
    );

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
    until_true("the certificate to expire", || {
        let last = place.run("certs check short", &[]);
        let is_expired = last.0 == 1;
        codes.push(last);
        is_expired
    });
    let (_, expired) = codes.pop().unwrap();
    assert!(
        expired.contains("error: ") && expired.contains("short/tls.crt expired at "),
        "{expired}"
    );
    for (code, text) in codes {
        assert!(
            code == 0 && text.contains("less than a quarter of its validity is left"),
            "{code}: {text}"
        );
    }

    fs::create_dir(place.path("to-come")).unwrap();
    Authority::new("a.example").write(
        &place.path("to-come"),
        PeerRole::Controller,
        Validity::to_come(),
    );
    let (code, text) = place.run("certs check to-come", &[]);
    assert!(
        code == 1 && text.contains("becomes valid at ") && text.contains("compare the clock"),
        "{code}: {text}"
    );
}
