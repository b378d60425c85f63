//! Every fuzz target for a minute: inputs that panic, take too long or hold too much memory.

use std::process::Command;

use plimsoll_testing::process::binary;

use crate::measure::report::Report;

const SECONDS: &str = "60";
const BAR: &str = "no failure, <= 1 s and <= 64 MiB an input";

pub(crate) fn measure(report: &mut Report) {
    let args = ["all", "--seconds", SECONDS, "--seed", "1"];
    let output = Command::new(binary("plimsoll-fuzz"))
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter_map(|line| {
        let [target, inputs, slowest_ms, kib, failures] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        Some((
            target,
            inputs,
            slowest_ms,
            kib,
            failures.parse::<u32>().ok()?,
        ))
    });
    let mut targets = 0;
    for (target, inputs, slowest_ms, kib, failures) in rows {
        let figure = format!(
            "{inputs} inputs, the slowest in {slowest_ms} ms, at most {kib} KiB, {failures} failures"
        );
        report.row(target, BAR, figure, failures == 0);
        targets += 1;
    }
    report.row(
        "targets that ended",
        "all",
        targets.to_string(),
        targets > 0 && output.status.success(),
    );
}
