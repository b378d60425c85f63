//! The decisions of a run: the refused or lost share, by second and reason, without the seconds
//! when this machine was too busy to make the requests in time.

use std::collections::BTreeMap;
use std::time::Duration;

/// A request with a longer delay makes its second useless: other delayed requests arrive with it,
/// which is other traffic.
const LATE_MAX: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    pub(super) at: Duration,
    /// Delay after the moment when it was due.
    pub(super) late: Duration,
    pub(super) tenant: &'static str,
    pub(super) refused: Option<&'static str>,
}

pub(super) struct Record(pub(super) Vec<Decision>);

pub(super) struct Judged {
    pub(super) decisions: Vec<Decision>,
    pub(super) seconds: usize,
    /// Seconds of the span, judged or not.
    pub(super) of: usize,
    /// Maximum delay of all requests.
    pub(super) latest: Duration,
}

impl Record {
    pub(super) fn between(&self, from: u64, until: u64) -> &[Decision] {
        let at = |second| {
            self.0
                .partition_point(|decision| decision.at < Duration::from_secs(second))
        };
        &self.0[at(from)..at(until)]
    }

    /// Returns the decisions in the seconds of a span with every request in time. Prints the
    /// refusals in each second.
    pub(super) fn judged(&self, from: u64, until: u64) -> Judged {
        let latest = self
            .between(from, until)
            .iter()
            .map(|decision| decision.late)
            .max();
        let latest = latest.unwrap_or_default();
        let mut judged = Judged {
            decisions: Vec::new(),
            seconds: 0,
            of: (until - from) as usize,
            latest,
        };
        for second in from..until {
            let decisions = self.between(second, second + 1);
            let is_judged = decisions.iter().all(|decision| decision.late <= LATE_MAX);
            if is_judged {
                judged.seconds += 1;
                judged.decisions.extend(decisions);
            }
            let refused = refusals(decisions);
            if !refused.is_empty() {
                let note = if is_judged { "" } else { "; not judged" };
                println!(
                    "       second {second}: {} requests{refused}{note}",
                    decisions.len()
                );
            }
        }
        judged
    }

    /// Returns the lost decisions: refused, although one token bucket of the limit in one place,
    /// with room for a quarter of a second, would have admitted the request.
    pub(super) fn lost(self, limit: u32) -> Self {
        let limit = f64::from(limit);
        let depth = (0.25 * limit).max(2.0 * limit.sqrt());
        let (mut tokens, mut last) = (depth, Duration::ZERO);
        let decide = |decision: Decision| {
            tokens = (tokens + limit * (decision.at - last).as_secs_f64()).min(depth);
            last = decision.at;
            let fits = tokens >= 1.0;
            if fits {
                tokens -= 1.0;
            }
            Decision {
                refused: decision.refused.filter(|_| fits),
                ..decision
            }
        };
        Self(self.0.into_iter().map(decide).collect())
    }

    /// Returns the time from `from` until the share of refused requests over the latest half a
    /// second stays at `share` or below for three seconds.
    pub(super) fn settled(&self, from: Duration, share: f64) -> Option<Duration> {
        const WINDOW: Duration = Duration::from_millis(500);
        const CALM: Duration = Duration::from_secs(3);
        let after = &self.0[self.0.partition_point(|decision| decision.at < from)..];
        let (mut first, mut refused, mut settled) = (0, 0, from + WINDOW);
        for (at, decision) in after.iter().enumerate() {
            refused += u32::from(decision.refused.is_some());
            while after[first].at + WINDOW < decision.at {
                refused -= u32::from(after[first].refused.is_some());
                first += 1;
            }
            if f64::from(refused) > share * (at + 1 - first) as f64 {
                settled = settled.max(decision.at);
            }
            if decision.at >= settled + CALM {
                return Some(settled - from);
            }
        }
        None
    }
}

impl Judged {
    pub(super) fn refused(&self, tenant: Option<&str>) -> f64 {
        let is_of = |decision: &&Decision| tenant.is_none_or(|tenant| decision.tenant == tenant);
        let of = || self.decisions.iter().filter(is_of);
        of().filter(|decision| decision.refused.is_some()).count() as f64
            / of().count().max(1) as f64
    }

    pub(super) fn is_enough(&self) -> bool {
        2 * self.seconds > self.of
    }

    pub(super) fn basis(&self) -> String {
        let requests = self.decisions.len();
        let late = match self.of - self.seconds {
            0 => String::new(),
            late => format!(
                "; late by up to {} ms in {late} of {} s",
                self.latest.as_millis(),
                self.of
            ),
        };
        format!("{requests} requests{}{late}", refusals(&self.decisions))
    }
}

fn refusals(decisions: &[Decision]) -> String {
    let mut counts = BTreeMap::<&str, u32>::new();
    for reason in decisions.iter().filter_map(|decision| decision.refused) {
        *counts.entry(reason).or_default() += 1;
    }
    counts
        .iter()
        .map(|(reason, count)| format!(", {count} refused by {reason}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(decisions: impl IntoIterator<Item = (u64, bool)>) -> Record {
        let decision = |(at, is_refused): (u64, bool)| Decision {
            at: Duration::from_millis(at),
            late: Duration::ZERO,
            tenant: "acme",
            refused: is_refused.then_some("burst_guard"),
        };
        Record(decisions.into_iter().map(decision).collect())
    }

    #[test]
    fn second_with_late_requests_is_skipped() {
        let mut record = record([(100, true), (1_100, false), (1_900, true), (2_100, true)]);
        record.0[1].late = LATE_MAX * 2;
        let judged = record.judged(0, 3);
        assert_eq!(
            (judged.seconds, judged.of, judged.decisions.len()),
            (2, 3, 2)
        );
        assert_eq!(
            (
                judged.refused(None),
                judged.refused(Some("shop")),
                judged.latest
            ),
            (1.0, 0.0, LATE_MAX * 2)
        );
        assert_eq!(
            judged.basis(),
            "2 requests, 2 refused by burst_guard; late by up to 40 ms in 1 of 3 s"
        );
    }

    #[test]
    fn refusal_is_lost_where_one_limit_fits() {
        // A limit of 100 has room for 25 requests together, and for one more after 10 ms.
        let group = (0..30).map(|number| (1_000, number >= 20));
        let lost = record(group.chain([(1_010, true), (1_015, true)])).lost(100);
        let times: Vec<_> = lost
            .0
            .iter()
            .filter(|decision| decision.refused.is_some())
            .collect();
        assert_eq!(times.len(), 6, "{times:?}");
        assert_eq!(times[5].at, Duration::from_millis(1_010));
    }

    #[test]
    fn settling_ends_with_the_last_refusals() {
        let second = Duration::from_secs(1);
        let until = |end| {
            record((0..1_000).map(|number| (number * 10, number * 10 < end))).settled(second, 0.05)
        };
        assert_eq!(until(0), Some(Duration::from_millis(500)));
        // Of the 51 requests of a window two may be refused.
        assert_eq!(until(3_000), Some(Duration::from_millis(2_470)));
        assert_eq!(until(8_000), None, "three calm seconds are not over");
    }
}
