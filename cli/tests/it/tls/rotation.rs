//! Certificates and authorities that are replaced under load, three times, as Kubernetes replaces
//! the files of a Secret: no stream is lost, no request is delayed or refused, and the new
//! certificates are in use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_testing::fleet::{BUCKET, LOAD, metric};
use plimsoll_testing::process::{POLL, Process, succeed, until_true};
use plimsoll_testing::turns::turn;
use plimsoll_tls::Certificates;
use serde_json::Value;

use super::tiers::{Files, SERVICE, aggregator, certs, connect, service, url};

const OFFERED: u32 = 400;
/// So high that nothing is refused.
const LIMIT: u32 = 4_000;
const ROTATIONS: u32 = 3;
/// Life of the first certificates. Their streams are renewed within it.
const FIRST_LIFE: Duration = Duration::from_secs(25);
const LIFE: Duration = Duration::from_secs(3_600);
const ZONES: [&str; 2] = ["zone-a", "zone-b"];
const SERVICES_PER_ZONE: usize = 2;

fn command(args: &[&str]) {
    succeed(&[&["certs"], args].concat());
}

fn authority(files: &Files, name: &str) -> (PathBuf, String) {
    let directory = files.path(name);
    command(&["init", "--dir", directory.to_str().unwrap()]);
    let certificate = fs::read_to_string(directory.join("ca.crt")).unwrap();
    (directory, certificate)
}

struct Secret {
    /// Arguments of `plimsoll certs issue`.
    subject: Vec<&'static str>,
    directory: PathBuf,
    /// Number of sets so far.
    generation: u64,
}

impl Secret {
    fn new(files: &Files, name: &str, subject: &[&'static str], authority: &Path) -> Self {
        let mut secret = Self {
            subject: subject.to_vec(),
            directory: files.path(name),
            generation: 0,
        };
        fs::create_dir(&secret.directory).unwrap();
        secret.renew(authority, FIRST_LIFE);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), secret.directory.join(name)).unwrap();
        }
        secret
    }

    fn renew(&mut self, authority: &Path, lifetime: Duration) {
        let (folder, lifetime) = (self.next(), format!("{}s", lifetime.as_secs()));
        let [ca, out] = [authority, &folder].map(|path| path.to_str().unwrap());
        let trust = ["--ca", ca, "--out", out, "--lifetime", &lifetime];
        command(&[&["issue"], &self.subject[..], &trust].concat());
        self.put(&folder);
    }

    fn trust(&mut self, authorities: &str) {
        let folder = self.next();
        fs::create_dir(&folder).unwrap();
        for name in ["tls.crt", "tls.key"] {
            fs::copy(self.directory.join(name), folder.join(name)).unwrap();
        }
        fs::write(folder.join("ca.crt"), authorities).unwrap();
        self.put(&folder);
    }

    fn next(&self) -> PathBuf {
        self.directory.join(format!("..{}", self.generation))
    }

    /// Replaces all files in one step: they are links through `..data`, which is renamed.
    fn put(&mut self, folder: &Path) {
        let swap = self.directory.join("..swap");
        symlink(folder, &swap).unwrap();
        fs::rename(swap, self.directory.join("..data")).unwrap();
        self.generation += 1;
    }
}

/// Waits until every process uses this generation of its files.
fn until_used(processes: &[&Process], generation: u64) {
    for process in processes {
        process.wait_for(|line| {
            let fields = &line["fields"];
            fields["message"] == "certificates renewed" && fields["generation"] == generation
        });
    }
}

/// The decisions of each service, for a failure.
fn decisions(services: &[Process]) -> String {
    let pages = services.iter().map(|service| service.metrics("listen"));
    let lines = |page: String| {
        let lines = page
            .lines()
            .filter(|line| line.contains("decisions_total{"));
        lines.map(|line| format!("\n{line}")).collect::<String>()
    };
    pages.map(lines).collect()
}

#[test]
fn certificate_rotation_loses_no_stream_or_request() {
    let _turn = turn(OFFERED);
    let files = Files::new();
    let (mut ca, mut trusted) = authority(&files, "ca");
    let ends = SystemTime::now() + FIRST_LIFE;
    let mut secrets = vec![Secret::new(&files, "controller", &["controller"], &ca)];
    for zone in ZONES {
        secrets.push(Secret::new(
            &files,
            zone,
            &["aggregator", "--zone", zone],
            &ca,
        ));
    }
    for (zone, number) in ZONES
        .into_iter()
        .flat_map(|zone| (0..SERVICES_PER_ZONE).map(move |n| (zone, n)))
    {
        let subject = ["service", "--zone", zone, "--service", SERVICE];
        secrets.push(Secret::new(
            &files,
            &format!("{zone}-{number}"),
            &subject,
            &ca,
        ));
    }
    let directory = |at: usize| secrets[at].directory.clone();
    let top = files.controller(LIMIT, &certs(&directory(0)));
    let aggregators = [0, 1].map(|at| {
        aggregator(
            ZONES[at],
            ZONES[at],
            &url("https", &top),
            &certs(&directory(1 + at)),
        )
    });
    let services: Vec<Process> = (0..ZONES.len() * SERVICES_PER_ZONE)
        .map(|at| {
            let zone = at / SERVICES_PER_ZONE;
            service(
                ZONES[zone],
                &url("https", &aggregators[zone]),
                &certs(&directory(3 + at)),
            )
        })
        .collect();
    let processes: Vec<&Process> = [&top]
        .into_iter()
        .chain(&aggregators)
        .chain(&services)
        .collect();
    let is_whole = || {
        let has_children = |aggregator: &Process| {
            let page = aggregator.metrics("admin");
            metric(&page, "plimsoll_children", "") >= SERVICES_PER_ZONE as f64
                && metric(&page, "plimsoll_uplink_connected", "") == 1.0
        };
        let connected = |aggregators: &Vec<Value>| {
            aggregators
                .iter()
                .filter(|aggregator| aggregator["connected"] == true)
                .count()
                == ZONES.len()
        };
        aggregators.iter().all(has_children)
            && top.status()["aggregators"]
                .as_array()
                .is_some_and(connected)
    };
    until_true("all streams to be open", &is_whole);
    let targets: Vec<String> = services
        .iter()
        .map(|it| it.url("listen") + "/" + BUCKET)
        .collect();
    let (targets, rps) = (targets.join(","), OFFERED.to_string());
    let flags = ["--target", &targets, "--rps", &rps, "--timeout", "60s"];
    let mut load = Process::spawn(&[&LOAD[..], &flags].concat());

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watched = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(is_whole(), "a stream was lost: {}", top.status());
                thread::sleep(POLL);
            }
        });
        let mut rotate = |step: &dyn Fn(&mut Secret)| {
            secrets.iter_mut().for_each(step);
            until_used(&processes, secrets[0].generation);
        };
        for number in 0..ROTATIONS {
            let (next, of_next) = authority(&files, &format!("ca-{number}"));
            let both = of_next.clone() + &trusted;
            rotate(&|secret| secret.renew(&ca, LIFE));
            rotate(&|secret| secret.trust(&both));
            // The command copies the authorities next to its key.
            fs::write(next.join("ca.crt"), &both).unwrap();
            rotate(&|secret| secret.renew(&next, LIFE));
            rotate(&|secret| secret.trust(&of_next));
            fs::write(next.join("ca.crt"), &of_next).unwrap();
            (ca, trusted) = (next, of_next);
        }
        // Streams that the first certificates opened would end with them.
        until_true("the end of the first certificates", || {
            SystemTime::now() > ends + Duration::from_secs(2)
        });
        is_over.store(true, Ordering::Relaxed);
        watched.join().unwrap();
    });

    assert!(load.terminate().success());
    let figures = load.output_lines().pop().unwrap();
    for outcome in ["refused", "failed", "timed_out", "not_sent"] {
        assert_eq!(figures[outcome], 0, "{figures} {}", decisions(&services));
    }
    let first_end = ends.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    for (process, secret) in processes.iter().zip(&secrets) {
        let port = if secret.subject[0] == "service" {
            "listen"
        } else {
            "admin"
        };
        let page = process.metrics(port);
        for never in [
            "plimsoll_feed_disconnects_total",
            "plimsoll_uplink_lost_total",
            "plimsoll_handshakes_failed_total",
            "plimsoll_streams_rejected_total",
            "plimsoll_certificates_refused",
        ] {
            assert_eq!(metric(&page, never, ""), 0.0, "{never}: {page}");
        }
        let not_after = metric(
            &page,
            "plimsoll_certificate_not_after_timestamp_seconds",
            "",
        );
        assert!(not_after > first_end + LIFE.as_secs_f64() / 2.0, "{page}");
        let lost = process
            .log()
            .iter()
            .filter(|line| line.contains("lost") || line.contains("disconnected"))
            .count();
        assert_eq!(lost, 0, "{:?}", process.log());
    }
    let open = |authority: &Path| {
        let name = authority.file_name().unwrap().to_str().unwrap();
        let secret = Secret::new(
            &files,
            &format!("by-{name}"),
            &["aggregator", "--zone", "zone-a"],
            authority,
        );
        connect(&top, &Certificates::open(&secret.directory).unwrap())
            .map_err(|error| error.label())
    };
    assert_eq!(open(&ca), Ok(()), "the last authority is trusted");
    assert_eq!(
        open(&files.path("ca")),
        Err("unknown_authority"),
        "the first one is trusted no longer"
    );
}
