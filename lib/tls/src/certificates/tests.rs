//! Rotation of the files, read at chosen times: each set is taken, or refused and logged.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::Zone;
use tempfile::TempDir;

use super::{Certificates, Health, lock};
use crate::files::FILE_BYTES_MAX;
use crate::testing::{Authority, Leaf, Request, Validity};

const NAMES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

fn zone(zone: &str) -> PeerRole {
    PeerRole::Aggregator {
        zone: Zone::new(zone).unwrap(),
    }
}

struct Process {
    authority: Authority,
    directory: TempDir,
    certificates: Certificates,
    log: Log,
}

impl Process {
    fn new() -> Self {
        let authority = Authority::new("a.example");
        let directory = tempfile::tempdir().unwrap();
        authority.write(directory.path(), zone("z"), Validity::default());
        let log = Log::default();
        let certificates = log.during(|| Certificates::open(directory.path()).unwrap());
        Self {
            authority,
            directory,
            certificates,
            log,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn request(&self) -> Request {
        self.authority.request(zone("z"), Validity::default())
    }

    fn write(&self, request: &Request) {
        self.authority
            .write_leaf(self.directory.path(), &self.authority.issue(request));
    }

    fn look(&self) {
        self.look_at(SystemTime::now());
    }

    fn look_at(&self, now: SystemTime) {
        self.log.during(|| self.certificates.look(now));
    }

    /// Reads until a fault is settled, and returns the reason. The generation must not change.
    fn refusal(&self) -> String {
        let before = self.certificates.health();
        let lines = self.log.lines().len();
        self.look();
        assert_eq!(
            self.certificates.health().failures,
            before.failures,
            "files may be half written"
        );
        for _ in 0..3 {
            self.look();
        }
        let after = self.certificates.health();
        assert_eq!(
            (after.generation, after.not_after),
            (before.generation, before.not_after)
        );
        assert_eq!(after.failures, before.failures + 1);
        let refused = after.refused.expect("the change is refused");
        let logged = self.log.lines().split_off(lines);
        assert_eq!(logged.len(), 1, "a change is logged once: {logged:?}");
        assert!(
            logged[0].contains("WARN") && logged[0].contains(&refused),
            "{logged:?}"
        );
        refused
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run)
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8(lock(&self.0).clone())
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn first_look_takes_the_whole_set() {
    let process = Process::new();
    let mut changes = process.certificates.changes();
    let first = process.certificates.health();
    assert_eq!(
        (first.generation, first.failures, &first.refused),
        (1, 0, &None)
    );
    process.look();
    assert!(!changes.has_changed().unwrap(), "nothing has changed");

    process.write(&Request {
        validity: Validity::lasting(Duration::from_secs(7_200)),
        ..process.request()
    });
    process.look();
    assert_eq!(*changes.borrow_and_update(), 2);
    let second = process.certificates.health();
    assert_eq!(
        (second.generation, second.failures, second.refused),
        (2, 0, None)
    );
    assert!(second.not_after > first.not_after);
    process.look();
    assert!(!changes.has_changed().unwrap());
    let lines = process.log.lines();
    assert!(
        lines.len() == 1 && lines[0].contains("certificates renewed"),
        "{lines:?}"
    );
}

#[test]
fn garbage_keeps_the_set() {
    let process = Process::new();
    let key = fs::read_to_string(process.path("tls.key")).unwrap();
    let secret = key.lines().nth(1).unwrap().to_owned();
    let certificate = fs::read_to_string(process.path("tls.crt")).unwrap();
    let begin = "-----BEGIN CERTIFICATE-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("text", b"Not found".to_vec()),
        ("page", b"<!DOCTYPE html><html></html>".to_vec()),
        ("zeros", vec![0; 4_096]),
        ("bytes", (0..=255).cycle().take(10_000).collect()),
        ("begun", begin.into()),
        ("cut", certificate[..certificate.len() / 2].into()),
        ("cut key", key[..key.len() / 2].into()),
        (
            "no base64",
            format!("{begin}{secret}!\n-----END CERTIFICATE-----\n").into(),
        ),
        (
            "no certificate",
            format!("{begin}{secret}\n-----END CERTIFICATE-----\n").into(),
        ),
        (
            "other section",
            format!("-----BEGIN {secret}\n{secret}").into(),
        ),
        ("encrypted", encrypted.into()),
        ("large", vec![b'\n'; FILE_BYTES_MAX + 1]),
        (
            "whole and large",
            [certificate.as_bytes(), &[b'\n'; FILE_BYTES_MAX]].concat(),
        ),
    ];
    for name in NAMES {
        let whole = fs::read(process.path(name)).unwrap();
        for (kind, content) in &garbage {
            fs::write(process.path(name), content).unwrap();
            let refusal = process.refusal();
            assert!(refusal.contains(name), "{kind} in {name}: {refusal}");
            assert!(!refusal.contains(&secret), "{kind} in {name}: {refusal}");
            fs::write(process.path(name), &whole).unwrap();
            process.look();
            assert_eq!(
                process.certificates.health().refused,
                None,
                "{kind} in {name}"
            );
            assert!(process.log.lines().last().unwrap().contains("restored"));
        }
    }
    assert!(!process.log.lines().concat().contains(&secret));
}

#[test]
fn missing_file_keeps_the_set() {
    let process = Process::new();
    let replacements: [(&str, &dyn Fn(PathBuf)); 5] = [
        ("No such file", &|_| {}),
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a FIFO", &|path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success())
        }),
        ("a device", &|path| symlink("/dev/zero", path).unwrap()),
        ("symbolic links", &|path| {
            symlink(path.file_name().unwrap(), &path).unwrap()
        }),
    ];
    for name in NAMES {
        for (reason, replace) in replacements {
            let whole = fs::read(process.path(name)).unwrap();
            fs::remove_file(process.path(name)).unwrap();
            replace(process.path(name));
            let refusal = process.refusal();
            assert!(
                refusal.contains(name) && refusal.contains(reason),
                "{name}: {refusal}"
            );
            assert!(refusal.contains("the directory must have tls.crt, tls.key and ca.crt"));
            if fs::remove_file(process.path(name)).is_err() {
                let _ = fs::remove_dir(process.path(name));
            }
            fs::write(process.path(name), whole).unwrap();
            process.look();
            assert_eq!(
                process.certificates.health().refused,
                None,
                "{name}: {reason}"
            );
        }
    }
}

#[test]
fn misfit_set_is_refused_with_a_remedy() {
    let process = Process::new();
    let usual = process.request();
    let other = Authority::new("a.example");
    let issue = |request: &Request| process.authority.issue(request);
    let other_zone = issue(&process.authority.request(zone("y"), Validity::default()));
    let other_domain = issue(&Authority::new("b.example").request(zone("z"), Validity::default()));
    let own = |name| fs::read_to_string(process.path(name)).unwrap();
    let (certificate, key, ca) = (own("tls.crt"), own("tls.key"), own("ca.crt"));
    let next = issue(&usual);
    let of = |request: Request| {
        let Leaf { certificate, key } = issue(&request);
        (certificate, key, ca.clone())
    };
    let uris = |uris: &[&str]| {
        of(Request {
            uris: uris.iter().map(ToString::to_string).collect(),
            ..usual.clone()
        })
    };
    let foreign = other.issue(&usual);
    for (set, file, reason) in [
        (
            (next.certificate.clone(), key.clone(), ca.clone()),
            "tls.key",
            "not the key of the certificate",
        ),
        (
            (certificate.clone(), next.key.clone(), ca.clone()),
            "tls.key",
            "not the key of the certificate",
        ),
        (
            (foreign.certificate, foreign.key, ca.clone()),
            "tls.crt",
            "not signed by an authority",
        ),
        (
            (key.clone(), key.clone(), ca.clone()),
            "tls.crt",
            "no whole certificate",
        ),
        (
            (certificate.clone(), certificate.clone(), ca.clone()),
            "tls.key",
            "no whole private key",
        ),
        (
            (certificate.clone(), key.clone(), key.clone()),
            "ca.crt",
            "no whole certificate",
        ),
        (
            (ca.clone(), key.clone(), ca.clone()),
            "tls.crt",
            "no identity",
        ),
        (
            (other_zone.certificate, other_zone.key, ca.clone()),
            "tls.crt",
            "restart it to change that",
        ),
        (
            (other_domain.certificate, other_domain.key, ca.clone()),
            "tls.crt",
            "restart it to change that",
        ),
        (uris(&[]), "tls.crt", "no identity"),
        (
            uris(&[&usual.uris[0], &other_zone_uri()]),
            "tls.crt",
            "2 identities",
        ),
        (
            uris(&["spiffe://a.example/ns/default/sa/plimsoll"]),
            "tls.crt",
            "/plimsoll/controller",
        ),
        (
            of(Request {
                validity: Validity::ended(),
                ..usual.clone()
            }),
            "tls.crt",
            "has expired",
        ),
        (
            of(Request {
                validity: Validity::to_come(),
                ..usual.clone()
            }),
            "tls.crt",
            "compare the clock",
        ),
        (
            of(Request {
                client: false,
                ..usual.clone()
            }),
            "tls.crt",
            "extended key usage",
        ),
        (
            of(Request {
                server: false,
                ..usual.clone()
            }),
            "tls.crt",
            "extended key usage",
        ),
    ] {
        for (name, content) in NAMES.iter().zip([&set.0, &set.1, &set.2]) {
            fs::write(process.path(name), content).unwrap();
        }
        let refusal = process.refusal();
        assert!(
            refusal.contains(file) && refusal.contains(reason),
            "{file} {reason}: {refusal}"
        );
    }
    assert_eq!(process.certificates.health().failures, 16);
}

fn other_zone_uri() -> String {
    "spiffe://a.example/plimsoll/zone/y/aggregator".to_owned()
}

#[test]
fn early_set_is_taken_in_its_time() {
    let process = Process::new();
    process.write(&Request {
        validity: Validity::to_come(),
        ..process.request()
    });
    let refusal = process.refusal();
    assert!(refusal.contains("becomes valid in"), "{refusal}");
    process.look_at(SystemTime::now() + Duration::from_secs(3_700));
    let health = process.certificates.health();
    assert_eq!((health.generation, health.refused), (2, None));
}

#[test]
fn gradual_replacement_gives_no_warning() {
    let process = Process::new();
    let mut lines = 0;
    for (round, order) in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ]
    .into_iter()
    .enumerate()
    {
        let leaf = process.authority.issue(&process.request());
        let bundle = process.authority.pem().to_owned() + Authority::new("a.example").pem();
        let contents = [leaf.certificate, leaf.key, bundle];
        for index in order {
            fs::write(process.path(NAMES[index]), &contents[index]).unwrap();
            process.look();
        }
        let health = process.certificates.health();
        assert_eq!((health.failures, health.refused), (0, None), "{order:?}");
        // The bundle may be first or last, and is accepted by itself.
        lines += if order[1] == 2 { 1 } else { 2 };
        assert_eq!(health.generation, 1 + lines, "round {round}");
    }
    let logged = process.log.lines();
    assert!(
        logged
            .iter()
            .all(|line| line.contains("certificates renewed")),
        "{logged:?}"
    );
}

#[test]
fn new_authority_is_taken_whatever_the_leaf() {
    let process = Process::new();
    let [second, third, fourth] = [(); 3].map(|()| Authority::new("a.example"));
    let state = || {
        let Health {
            generation,
            failures,
            is_untrusted,
            refused,
            ..
        } = process.certificates.health();
        (generation, failures, is_untrusted, refused.is_some())
    };
    let settle = |name: &str, content: &str| {
        fs::write(process.path(name), content).unwrap();
        (0..3).for_each(|_| process.look());
        state()
    };
    assert_eq!(settle("ca.crt", second.pem()), (2, 0, true, false));
    let logged = process.log.lines().concat();
    assert!(
        logged.contains("ERROR") && logged.contains("no authority of ca.crt signs"),
        "{logged}"
    );

    let [torn, whole] = [&third.pem()[..300], third.pem()];
    for content in ["", torn, &format!("{whole}{torn}")] {
        assert!(matches!(settle("ca.crt", content), (2, _, true, true)));
    }
    assert_eq!(settle("ca.crt", whole), (3, 3, true, false));
    assert_eq!(settle("tls.crt", "Not found"), (3, 4, true, true));
    assert_eq!(
        settle("ca.crt", fourth.pem()),
        (4, 5, true, true),
        "the leaf stays refused"
    );

    fourth.write_leaf(process.directory.path(), &fourth.issue(&process.request()));
    process.look();
    assert_eq!(state(), (5, 5, false, false));
}

#[test]
fn links_of_a_kubernetes_volume_are_followed() {
    let process = Process::new();
    let volume = tempfile::tempdir().unwrap();
    let path = |name: &str| volume.path().join(name);
    process
        .authority
        .write(&path("..2026_1"), zone("z"), Validity::default());
    symlink("..2026_1", path("..data")).unwrap();
    for name in NAMES {
        symlink(format!("..data/{name}"), path(name)).unwrap();
    }
    let certificates = Certificates::open(volume.path()).unwrap();
    process.authority.write(
        &path("..2026_2"),
        zone("z"),
        Validity::lasting(Duration::from_secs(7_200)),
    );
    symlink("..2026_2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    fs::remove_dir_all(path("..2026_1")).unwrap();
    certificates.look(SystemTime::now());
    assert_eq!(certificates.health().generation, 2);
    fs::remove_file(path("..data")).unwrap();
    certificates.look(SystemTime::now());
    certificates.look(SystemTime::now());
    let health = certificates.health();
    assert!(health.generation == 2 && health.refused.unwrap().contains("tls.crt"));
}

#[test]
fn expiry_is_logged_near_and_after() {
    let process = Process::new();
    let end = process.certificates.health().not_after;
    let lifetime = end
        .duration_since(process.certificates.health().not_before)
        .unwrap();
    let logged_at = |now| {
        let before = process.log.lines().len();
        process.look_at(now);
        process.log.lines().split_off(before)
    };
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    assert_eq!(logged_at(end - lifetime.mul_f64(0.26)), [""; 0]);
    let near = logged_at(end - lifetime.mul_f64(0.24));
    assert!(
        near.len() == 1 && near[0].contains("WARN") && near[0].contains("expires soon"),
        "{near:?}"
    );
    assert!(near[0].contains("left_s="), "{near:?}");
    assert_eq!(logged_at(end), [""; 0]);
    for (after, is_logged) in [
        (1, true),
        (10, false),
        (11, true),
        (12, false),
        (30, true),
        (29, true),
        (30, false),
    ] {
        let over = logged_at(end + minutes(after));
        assert_eq!(over.len(), usize::from(is_logged), "{after}: {over:?}");
        assert!(
            over.iter()
                .all(|line| line.contains("ERROR") && line.contains("has expired")),
            "{over:?}"
        );
    }
    process.write(&Request {
        validity: Validity::lasting(lifetime * 8),
        ..process.request()
    });
    let renewed = logged_at(end + minutes(30));
    assert!(
        renewed.len() == 1 && renewed[0].contains("renewed"),
        "{renewed:?}"
    );
}

#[test]
fn expired_set_opens_with_a_log_line() {
    let process = Process::new();
    let now = SystemTime::now();
    process.write(&Request {
        validity: Validity::ended(),
        ..process.request()
    });
    let certificates = process
        .log
        .during(|| Certificates::open(process.directory.path()).unwrap());
    assert!(certificates.health().is_expired(now));
    assert!(process.log.lines().last().unwrap().contains("has expired"));
    process.write(&process.request());
    process.log.during(|| certificates.look(now));
    assert!(!certificates.health().is_expired(now));
}

#[test]
fn only_world_readable_keys_are_logged() {
    use std::os::unix::fs::PermissionsExt;
    let process = Process::new();
    for (mode, is_logged) in [
        (0o600, false),
        (0o440, false),
        (0o640, false),
        (0o644, true),
        (0o604, true),
    ] {
        fs::set_permissions(process.path("tls.key"), fs::Permissions::from_mode(mode)).unwrap();
        let before = process.log.lines().len();
        process
            .log
            .during(|| Certificates::open(process.directory.path()).unwrap());
        let logged = process.log.lines().split_off(before).concat();
        assert_eq!(
            logged.contains("readable by all users"),
            is_logged,
            "{mode:o}: {logged}"
        );
    }
}

#[test]
fn debug_output_has_no_secret() {
    let process = Process::new();
    let key = fs::read_to_string(process.path("tls.key")).unwrap();
    let text = format!(
        "{:?} {:?}",
        process.certificates,
        process.certificates.health()
    );
    assert!(
        text.contains("spiffe://a.example/plimsoll/zone/z/aggregator"),
        "{text}"
    );
    for line in key.lines().filter(|line| !line.starts_with('-')) {
        assert!(!text.contains(line));
    }
    assert!(text.len() < 1_000, "no configuration is part of it: {text}");
}

#[tokio::test(start_paused = true)]
async fn follow_looks_at_the_files_by_itself() {
    let process = Process::new();
    let certificates = process.certificates.clone();
    let following = tokio::spawn(async move { certificates.follow().await });
    let mut changes = process.certificates.changes();
    for generation in 2..5 {
        process.write(&process.request());
        changes
            .wait_for(|number| *number == generation)
            .await
            .unwrap();
    }
    following.abort();
}
