//! One limit over two services with the client, Envoy with a sidecar and nginx with a sidecar, and
//! a kill of all.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::mixed_fleet::{Mixed, WEIGHTS};
use plimsoll_testing::process::{run, until};

use crate::measure::report::Report;
use crate::measure::root;

const LIMIT: u32 = 1_000;
const OFFERED: u32 = 3 * LIMIT;
const SETTLE: Duration = Duration::from_secs(10);
const WINDOW_S: f64 = 20.0;
/// Time without a refusal that shows the kill has reached all, and number of kills.
const QUIET: Duration = Duration::from_secs(2);
const KILLS: usize = 3;

pub(super) fn measure(report: &mut Report) {
    let what = "3 times the limit over two services, Envoy and nginx: admitted over 20 s against the limit";
    let Some((envoy, nginx)) = program("envoy").zip(program("nginx")) else {
        report.skip(what, "within 1 %", "Envoy or nginx is not installed");
        return;
    };
    let mut fleet = Mixed::start(LIMIT, &envoy, &nginx);
    fleet.start_load(OFFERED);
    sleep(SETTLE);
    let from = *fleet.answered().last().unwrap();
    let to = until("the end of the window", || {
        fleet
            .answered()
            .last()
            .copied()
            .filter(|last| last.at_s - from.at_s >= WINDOW_S)
    });
    let (admitted, of_tenants) = from.rates_until(&to);
    let error = admitted / f64::from(LIMIT) - 1.0;
    let offered = f64::from(OFFERED);
    let figure = format!(
        "{:+.2} % ({admitted:.0}/s of {offered:.0}/s offered)",
        error * 100.0
    );
    report.row(what, "within 1 %", figure, error.abs() <= 0.01);
    let weights: f64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    for ((name, weight), rate) in WEIGHTS.into_iter().zip(of_tenants) {
        let wanted = f64::from(LIMIT) * weight / weights;
        let figure = format!(
            "{:+.1} % ({rate:.0}/s of {wanted:.0}/s)",
            (rate / wanted - 1.0) * 100.0
        );
        let title =
            format!("the part of {name}, with weight {weight} of {weights}, against its due");
        report.row(
            &title,
            "within 5 %",
            figure,
            (rate / wanted - 1.0).abs() <= 0.05,
        );
    }
    kills(&fleet, report);
    let failed = fleet.answered().last().unwrap().failed;
    report.row(
        "requests without a proper answer, all the while",
        "0",
        failed.to_string(),
        failed == 0.0,
    );
}

/// Kills several times, and adds the time from the command to the last refusal of any path.
fn kills(fleet: &Mixed, report: &mut Report) {
    let controller = format!("http://{}", fleet.controller.address("admin"));
    let order = |args: &[&str]| {
        let ended = run(&[args, &["--controller", &controller]].concat());
        assert!(
            ended.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
    };
    let refuse = || fleet.refusals().iter().sum::<f64>();
    let mut worst = Duration::ZERO;
    for _ in 0..KILLS {
        let before = refuse();
        until("every path to refuse", || {
            (refuse() > before + 500.0).then_some(())
        });
        let began = Instant::now();
        order(&["kill", "on", "--reason", "measured"]);
        let (mut last, mut refused_at) = (refuse(), Instant::now());
        while refused_at.elapsed() < QUIET {
            let asked_at = Instant::now();
            let now = refuse();
            if now > last {
                (last, refused_at) = (now, asked_at);
            }
        }
        worst = worst.max(refused_at - began);
        order(&["kill", "off"]);
        order(&[
            "rollout",
            "promote",
            plimsoll_testing::fleet::BUCKET,
            "--to",
            "enforce",
            "--force",
            "--reason",
            "measured",
        ]);
    }
    let figure = format!("{:.0} ms", worst.as_secs_f64() * 1e3);
    let title =
        format!("from `plimsoll kill on` to the last refusal on any path, the worst of {KILLS}");
    report.row(&title, "<= 1 s", figure, worst <= Duration::from_secs(1));
}

/// Path of a program: in the search path, where Debian installs servers, or where `./test` puts
/// tools.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = [PathBuf::from("/usr/sbin"), root().join("target/tools")];
    let mut all = std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(name));
    all.find(|path| path.is_file())
}
