//! Certificate, key and CA files that are replaced by something else while a process runs: the earlier set stays in
//! use, the process says so, and mending the files ends it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use plimsoll_tls::Certificates;
use plimsoll_tls::testing::{Authority, Validity};

use super::tiers::{
    DOMAIN, Files, SERVICE, aggregator, aggregator_of, certs, connect, controller, logged, metrics, service,
    service_of, status, url,
};
use crate::fleet::metric;
use crate::process::{Process, until};
use crate::turns::{IDLE, turn};

const CERTIFICATE_FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// The name and the act of a damage.
type Damage = (&'static str, fn(&Path));

/// Things by which a file may be replaced.
pub(super) const DAMAGE: [Damage; 5] = [
    ("garbage", |path| fs::write(path, "-----BEGIN GARBAGE-----\n").unwrap()),
    ("an empty file", |path| fs::write(path, "").unwrap()),
    ("no file", |path| fs::remove_file(path).unwrap()),
    ("a directory", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("a FIFO", |path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
];

/// Removes whatever is at the path, and writes the file.
pub(super) fn mend(path: &Path, content: &[u8]) {
    let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    fs::write(path, content).unwrap();
}

/// A process, the port of its metrics, and the folder of its certificates.
#[derive(Clone, Copy)]
struct Followed<'a> {
    process: &'a Process,
    port: &'a str,
    directory: &'a Path,
}

impl Followed<'_> {
    /// Replaces one file after the other and mends it.
    fn survives(self, what: &str, damage: impl Fn(&Path), in_force: impl Fn() -> bool) {
        for name in CERTIFICATE_FILES {
            let path = self.directory.join(name);
            let good = fs::read(&path).unwrap();
            damage(&path);
            self.until_refused(1.0, &format!("{what} at {name} to be refused"));
            logged(self.process, &["refused", path.to_str().unwrap()]);
            assert!(in_force(), "{what} at {name}: the earlier certificates are in use");
            mend(&path, &good);
            self.until_refused(0.0, &format!("{name} to be mended after {what}"));
            assert!(in_force(), "{name} mended after {what}");
        }
    }

    fn until_refused(self, wanted: f64, what: &str) {
        until(what, || {
            let refused = metric(&metrics(self.process, self.port), "plimsoll_certificates_refused", "");
            (refused == wanted).then_some(())
        });
    }
}

#[test]
fn damaged_certificate_files_leave_the_earlier_ones_in_use_until_they_are_mended() {
    let _turn = turn(IDLE);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let of_controller = files.issue("controller", &authority, controller());
    let of_service = files.issue("service", &authority, service_of("zone-a", SERVICE));
    let as_child = Certificates::open(&files.issue("child", &authority, aggregator_of("zone-a"))).unwrap();
    let controller = files.controller(100, &certs(&of_controller));
    let parent = url("https", &controller);
    let aggregators = DAMAGE.map(|(what, damage)| {
        let directory = files.issue(what, &authority, aggregator_of("zone-a"));
        let process = aggregator("zone-a", &what.replace(' ', "-"), &parent, &certs(&directory));
        (what, damage, directory, process)
    });
    let service = service("zone-a", &url("https", &aggregators[0].3), &certs(&of_service));
    until("the service to be connected", || {
        (metric(&metrics(&service, "listen"), "plimsoll_feed_connected", "") == 1.0).then_some(())
    });
    thread::scope(|scope| {
        for (what, damage, directory, process) in &aggregators {
            let followed = Followed { process, port: "admin", directory };
            let in_force = || connect(process, &as_child).is_ok();
            scope.spawn(move || followed.survives(what, damage, in_force));
        }
        let of_tier = Followed { process: &controller, port: "admin", directory: &of_controller };
        let in_force = || connect(&controller, &as_child).is_ok();
        scope.spawn(move || of_tier.survives("garbage", DAMAGE[0].1, in_force));
        let of_client = Followed { process: &service, port: "listen", directory: &of_service };
        let is_connected = || metric(&metrics(&service, "listen"), "plimsoll_feed_connected", "") == 1.0;
        scope.spawn(move || of_client.survives("garbage", DAMAGE[0].1, is_connected));
    });
    assert_eq!(metric(&metrics(&service, "listen"), "plimsoll_feed_disconnects_total", ""), 0.0);
}

#[test]
fn key_of_another_certificate_and_another_identity_are_refused() {
    let _turn = turn(IDLE);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let other = Authority::new(DOMAIN);
    let directory = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    let as_child = Certificates::open(&files.issue("child", &authority, aggregator_of("zone-b"))).unwrap();
    // Nothing listens on the discard port.
    let process = aggregator("zone-a", "a", "https://127.0.0.1:9", &certs(&directory));
    let leaf = |authority: &Authority, role| authority.issue(&authority.request(role, Validity::default()));
    let followed = Followed { process: &process, port: "admin", directory: &directory };
    let good = CERTIFICATE_FILES.map(|name| fs::read(directory.join(name)).unwrap());
    let own = leaf(&authority, aggregator_of("zone-a"));
    let of_b = leaf(&authority, aggregator_of("zone-b"));
    let foreign = leaf(&other, aggregator_of("zone-a"));
    let ended = authority.issue(&authority.request(aggregator_of("zone-a"), Validity::ended()));
    let sets = [
        ("a key of another certificate", vec![("tls.key", &own.key)], "is not the key of the certificate"),
        (
            "a certificate of another key",
            vec![("tls.crt", &own.certificate)],
            "is not the key of the certificate",
        ),
        ("another zone", vec![("tls.crt", &of_b.certificate), ("tls.key", &of_b.key)], "keeps its identity"),
        (
            "another authority",
            vec![("tls.crt", &foreign.certificate), ("tls.key", &foreign.key)],
            "is not signed by an authority of ca.crt",
        ),
        (
            "an expired certificate",
            vec![("tls.crt", &ended.certificate), ("tls.key", &ended.key)],
            "has expired: renew it",
        ),
    ];
    for (what, replaced, cause) in sets {
        for (name, content) in replaced {
            fs::write(directory.join(name), content).unwrap();
        }
        logged(&process, &["refused", cause]);
        followed.until_refused(1.0, what);
        assert!(connect(&process, &as_child).is_ok(), "{what}");
        let shown = status(&process)["security"]["certificate"]["refused"].to_string();
        assert!(shown.contains(cause), "{what}: {shown}");
        for (name, content) in CERTIFICATE_FILES.iter().zip(&good) {
            fs::write(directory.join(name), content).unwrap();
        }
        followed.until_refused(0.0, &format!("the files to be mended after {what}"));
    }
    assert!(process.log().iter().all(|line| !line.contains("PRIVATE KEY")));
}
