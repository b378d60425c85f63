//! Accuracy: two zones of unequal load admit the limit in total, at several overloads and with an independent
//! caller.

use std::process::{Command, Stdio};
use std::thread::sleep;

use plimsoll_testing::fleet::{BUCKET, Fleet, policy};

use super::report::Report;
use super::{LIMIT, SETTLE, WINDOW, limit_error, sum};

const FACTORS: [f64; 2] = [3.0, 10.0];

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    for factor in FACTORS {
        open_loop(&mut fleet, factor, report);
    }
    wrk(&fleet, report);
}

fn open_loop(fleet: &mut Fleet, factor: f64, report: &mut Report) {
    fleet.start_load(factor * f64::from(LIMIT));
    sleep(SETTLE);
    let [a, b] = [0, 1].map(|zone| fleet.sample_zone(zone));
    let from = fleet.sample();
    sleep(WINDOW);
    let rates = from.rates_until(&fleet.sample());
    let zones = [
        a.rates_until(&fleet.sample_zone(0)),
        b.rates_until(&fleet.sample_zone(1)),
    ];
    let error = limit_error(&rates);
    let figure = format!(
        "{:+.2} % ({:.0}/s of {:.0}/s offered; {:.0}/s and {:.0}/s in the zones)",
        error * 100.0,
        rates.admitted,
        rates.offered,
        zones[0].admitted,
        zones[1].admitted
    );
    let title =
        format!("{factor:.0} times the limit offered: admitted over 20 s against the limit");
    report.row(&title, "within 1 %", figure, error.abs() <= 0.01);
    let failed = sum(&fleet.stop_load(), "failed");
    let title = format!("{factor:.0} times the limit offered: requests without an answer");
    report.row(&title, "0", failed.to_string(), failed == 0.0);
}

fn wrk(fleet: &Fleet, report: &mut Report) {
    let what = "as much as wrk can offer: admitted over 20 s against the limit";
    let callers: Result<Vec<_>, _> = fleet
        .services()
        .map(|service| {
            let address = format!("http://{}/{BUCKET}", service.address("listen"));
            let flags = ["-t1", "-c4", "-d40s", "-H", "x-tenant: acme"];
            Command::new("wrk")
                .args(flags)
                .arg(address)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        })
        .collect();
    let Ok(mut callers) = callers else {
        report.skip(what, "within 3 %", "wrk is not installed");
        return;
    };
    sleep(SETTLE * 2);
    let from = fleet.sample();
    sleep(WINDOW);
    let rates = from.rates_until(&fleet.sample());
    for caller in &mut callers {
        let _ = caller.kill();
        let _ = caller.wait();
    }
    let error = limit_error(&rates);
    let figure = format!(
        "{:+.2} % ({:.0}/s of {:.0}/s offered)",
        error * 100.0,
        rates.admitted,
        rates.offered
    );
    report.row(what, "within 3 %", figure, error.abs() <= 0.03);
}
