//! The results of a load run up to a moment, as text and JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::{Figures, Load, Outcomes};

/// The results up to a moment, in all and by tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    /// Seconds since the start.
    at_s: f64,
    #[serde(flatten)]
    all: Figures,
    tenants: BTreeMap<String, Outcomes>,
}

impl Summary {
    pub(super) fn new(load: &Load) -> Self {
        Self { at_s: load.age().as_secs_f64(), all: load.figures(), tenants: load.tenants() }
    }

    /// The number of failed requests.
    pub(super) const fn failed(&self) -> u64 {
        self.all.outcomes.failed
    }

    /// Returns true if no request was due.
    pub(super) const fn is_empty(&self) -> bool {
        self.all.outcomes.sent == 0 && self.all.outcomes.not_sent == 0
    }

    /// The progress so far on one line.
    pub(super) fn line(&self) -> String {
        let Outcomes { sent, served, refused, failed, .. } = self.all.outcomes;
        format!(
            "{:>7.1} s  sent {sent}, served {served}, refused {refused}, failed {failed}, p99 {:.1} ms",
            self.at_s, self.all.p99_ms
        )
    }

    /// Writes the final results with a row for each tenant.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Outcomes { sent, not_sent, timed_out, .. } = self.all.outcomes;
        writeln!(out, "{sent} requests in {:.1} s, {:.0} requests/s", self.at_s, sent as f64 / self.at_s)?;
        if not_sent > 0 {
            writeln!(out, "{not_sent} more were due but not sent: too many were waiting for an answer")?;
        }
        if timed_out > 0 {
            writeln!(out, "{timed_out} of the failed requests timed out")?;
        }
        writeln!(out, "time to an answer: p99 {:.1} ms, max {:.1} ms\n", self.all.p99_ms, self.all.max_ms)?;
        writeln!(out, "{:<24} {:>10} {:>17} {:>17} {:>17}", "tenant", "sent", "served", "refused", "failed")?;
        for (tenant, outcomes) in &self.tenants {
            write_row(out, tenant, outcomes)?;
        }
        if self.tenants.len() > 1 {
            write_row(out, "all", &self.all.outcomes)?;
        }
        out.flush()
    }
}

fn write_row(out: &mut dyn Write, name: &str, outcomes: &Outcomes) -> io::Result<()> {
    let Outcomes { sent, served, refused, failed, .. } = *outcomes;
    let share = |count: u64| {
        let percent = if sent > 0 { 100.0 * count as f64 / sent as f64 } else { 0.0 };
        format!("{count} ({percent:.1} %)")
    };
    let [served, refused, failed] = [served, refused, failed].map(share);
    writeln!(out, "{name:<24} {sent:>10} {served:>17} {refused:>17} {failed:>17}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_a_row_for_each_tenant() {
        let acme = Outcomes { sent: 200, served: 150, refused: 50, ..Outcomes::default() };
        let shop = Outcomes { sent: 100, served: 97, failed: 3, timed_out: 1, ..Outcomes::default() };
        let summary = Summary {
            at_s: 2.0,
            all: Figures { outcomes: acme + shop, p99_ms: 12.34, max_ms: 50.0 },
            tenants: [("acme", acme), ("shop", shop)].map(|(name, seen)| (name.to_owned(), seen)).into(),
        };
        let mut out = Vec::new();
        summary.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for expected in [
            "300 requests in 2.0 s, 150 requests/s\n",
            "1 of the failed requests timed out\n",
            "p99 12.3 ms, max 50.0 ms\n",
            "acme                            200      150 (75.0 %)       50 (25.0 %)         0 (0.0 %)\n",
            "all                             300      247 (82.3 %)       50 (16.7 %)         3 (1.0 %)\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        assert_eq!(summary.line(), "    2.0 s  sent 300, served 247, refused 50, failed 3, p99 12.3 ms");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json["at_s"], &json["tenants"]["shop"]["timed_out"]), (&2.0.into(), &1.into()));
    }
}
