//! The results of a load run up to a moment: the outcomes of its requests, as text and JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Add;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) outcomes: Outcomes,
    /// 99th percentile of the time from the first attempt to the last answer, failure or timeout, in milliseconds.
    pub(crate) p99_ms: f64,
    /// Maximum of this time, in milliseconds.
    pub(crate) max_ms: f64,
}

/// Requests by outcome since the start. Sent requests that are not served, refused or failed wait for an answer or
/// a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Outcomes {
    pub(crate) sent: u64,
    /// Requests on the wire, those that were sent again included.
    pub(crate) attempts: u64,
    /// Answered with 200 in time: the useful answers.
    pub(crate) served: u64,
    /// Answered with 429.
    pub(crate) refused: u64,
    /// Answered with another status, too late or not at all.
    pub(crate) failed: u64,
    /// The part of `failed` without an answer in time.
    pub(crate) timed_out: u64,
    /// Due but not sent, because too many requests waited for an answer.
    pub(crate) not_sent: u64,
}

/// Results up to a moment, in total and by tenant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// Seconds since the start.
    pub(super) at_s: f64,
    #[serde(flatten)]
    pub(crate) all: Figures,
    pub(super) tenants: BTreeMap<String, Outcomes>,
    /// Cause of the first failed request, with its URL.
    #[serde(skip)]
    pub(super) first_failure: Option<String>,
    /// True once any request was answered.
    #[serde(skip)]
    pub(super) answered: bool,
    /// Seed that repeats the moments and users of the requests.
    pub(super) seed: u64,
}

impl Summary {
    pub(super) fn line(&self) -> String {
        let Outcomes {
            sent,
            served,
            refused,
            failed,
            ..
        } = self.all.outcomes;
        format!(
            "{:>7.1} s  sent {sent}, served {served}, refused {refused}, failed {failed}, p99 {:.1} ms",
            self.at_s, self.all.p99_ms
        )
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Outcomes {
            sent,
            attempts,
            not_sent,
            timed_out,
            ..
        } = self.all.outcomes;
        let Self { at_s, seed, .. } = self;
        writeln!(
            out,
            "{sent} requests in {at_s:.1} s, {:.0} requests/s, with --seed {seed}",
            sent as f64 / at_s
        )?;
        if attempts > sent {
            let each = attempts as f64 / sent as f64;
            writeln!(out, "{attempts} attempts, {each:.2} for each request")?;
        }
        if not_sent > 0 {
            writeln!(
                out,
                "{not_sent} more were due but not sent: too many were waiting for an answer"
            )?;
        }
        if timed_out > 0 {
            writeln!(out, "{timed_out} of the failed requests timed out")?;
        }
        writeln!(
            out,
            "time to an answer: p99 {:.1} ms, max {:.1} ms\n",
            self.all.p99_ms, self.all.max_ms
        )?;
        writeln!(
            out,
            "{:<24} {:>10} {:>17} {:>17} {:>17}",
            "tenant", "sent", "served", "refused", "failed"
        )?;
        for (tenant, outcomes) in &self.tenants {
            write_row(out, tenant, outcomes)?;
        }
        if self.tenants.len() > 1 {
            write_row(out, "all", &self.all.outcomes)?;
        }
        Ok(())
    }
}

impl Add for Outcomes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            attempts: self.attempts + other.attempts,
            served: self.served + other.served,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            not_sent: self.not_sent + other.not_sent,
        }
    }
}

fn write_row(out: &mut dyn Write, name: &str, outcomes: &Outcomes) -> io::Result<()> {
    let Outcomes {
        sent,
        served,
        refused,
        failed,
        ..
    } = *outcomes;
    let share = |count: u64| {
        let percent = if sent > 0 {
            100.0 * count as f64 / sent as f64
        } else {
            0.0
        };
        format!("{count} ({percent:.1} %)")
    };
    let [served, refused, failed] = [served, refused, failed].map(share);
    writeln!(
        out,
        "{name:<24} {sent:>10} {served:>17} {refused:>17} {failed:>17}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_a_row_for_each_tenant() {
        let acme = Outcomes {
            sent: 200,
            attempts: 230,
            served: 150,
            refused: 50,
            ..Outcomes::default()
        };
        let shop = Outcomes {
            sent: 100,
            attempts: 100,
            served: 97,
            failed: 3,
            timed_out: 1,
            ..Outcomes::default()
        };
        let summary = Summary {
            at_s: 2.0,
            all: Figures {
                outcomes: acme + shop,
                p99_ms: 12.34,
                max_ms: 50.0,
            },
            tenants: [("acme", acme), ("shop", shop)]
                .map(|(name, seen)| (name.to_owned(), seen))
                .into(),
            first_failure: None,
            answered: true,
            seed: 7,
        };
        let mut out = Vec::new();
        summary.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for expected in [
            "300 requests in 2.0 s, 150 requests/s, with --seed 7\n",
            "330 attempts, 1.10 for each request\n",
            "1 of the failed requests timed out\n",
            "p99 12.3 ms, max 50.0 ms\n",
            "acme                            200      150 (75.0 %)       50 (25.0 %)         0 (0.0 %)\n",
            "all                             300      247 (82.3 %)       50 (16.7 %)         3 (1.0 %)\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        assert_eq!(
            summary.line(),
            "    2.0 s  sent 300, served 247, refused 50, failed 3, p99 12.3 ms"
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(
            (&json["at_s"], &json["tenants"]["shop"]["timed_out"]),
            (&2.0.into(), &1.into())
        );
    }
}
