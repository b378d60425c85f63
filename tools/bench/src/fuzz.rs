//! Every fuzz target for a minute: inputs that panic, take too long or hold too much memory.

use std::process::Command;

use crate::measure::report::Report;

const SECONDS: &str = "60";
const BAR: &str = "no failure, <= 1 s and <= 64 MiB an input";

pub(crate) fn measure(report: &mut Report) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--release", "-p", "plimsoll-fuzz", "targets::"])
        .args(["--", "--test-threads", "1", "--nocapture"])
        .env("FUZZ_SECONDS", SECONDS)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut targets = 0;
    for line in text.lines() {
        let [target, inputs, slowest_ms, kib] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        if inputs.parse::<u64>().is_ok() {
            let figure =
                format!("{inputs} inputs, the slowest in {slowest_ms} ms, at most {kib} KiB");
            report.row(target, BAR, figure, true);
            targets += 1;
        }
    }
    report.row(
        "targets that ended",
        "all",
        targets.to_string(),
        targets > 0 && output.status.success(),
    );
}
