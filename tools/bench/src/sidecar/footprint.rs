//! Memory and processor time of an idle and of a busy sidecar.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::process::Process;

use super::h2load::Requests;
use super::{Limited, OPEN};
use crate::measure::report::Report;
use crate::streams::process::{processor_time, resident_bytes};

const IDLE: Duration = Duration::from_secs(30);
const BUSY: Duration = Duration::from_secs(20);
/// Requests/s of a busy sidecar.
const RATE: usize = 20_000;

pub(super) fn measure(report: &mut Report) {
    let limited = Limited::start();
    let sidecar = &limited.sidecar;
    let used = cores_over(sidecar, || sleep(IDLE));
    report.note("an idle sidecar", footprint(sidecar, used));
    let loads = [
        (
            "RLS",
            Requests::rls(&limited.directory, OPEN),
            sidecar.address("listen"),
        ),
        (
            "POST /v1/check",
            Requests::check(&limited.directory, OPEN),
            sidecar.address("http"),
        ),
        ("GET /nginx", Requests::nginx(OPEN), sidecar.address("http")),
    ];
    for (what, requests, to) in loads {
        let mut sent = None;
        let used = cores_over(sidecar, || sent = Some(requests.send_at(RATE, to, BUSY)));
        let sent = sent.unwrap();
        let figure = format!(
            "{}, p99 {:.2} ms",
            footprint(sidecar, used),
            sent.p99_us / 1e3
        );
        report.note(
            &format!("a sidecar that answers {:.0}/s of {what}", sent.per_second),
            figure,
        );
    }
}

fn cores_over(process: &Process, run: impl FnOnce()) -> f64 {
    let (began, before) = (Instant::now(), processor_time(process.id()).unwrap());
    run();
    (processor_time(process.id()).unwrap() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

fn footprint(process: &Process, cores: f64) -> String {
    let mib = resident_bytes(process.id()).unwrap() as f64 / 1024.0 / 1024.0;
    format!("{mib:.1} MiB, {:.2} % of a core", cores * 100.0)
}
