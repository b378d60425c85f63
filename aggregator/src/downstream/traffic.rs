//! The traffic of one child aggregator, by slots of the fast loop, and the share of each limit that follows
//! from it.

use std::time::Duration;

use plimsoll_core::law::parameters;

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Requests/s, smoothed as clients smooth theirs and constant between two reports.
    rates: Vec<f64>,
    /// Requests in the report that is being entered.
    fresh: Vec<f64>,
    /// True once a report showed its rate.
    pub(crate) has_shown: bool,
    pub(crate) shares: Shares,
}

/// Shares of what may pass, 0 to 1, by slot of the fast loop.
#[derive(Debug)]
pub(crate) struct Shares {
    by_slot: Vec<f64>,
    /// The share of keys without a slot: their traffic is unknown.
    pub(crate) without_slot: f64,
}

impl Shares {
    pub(crate) const fn all(share: f64) -> Self {
        Self {
            by_slot: Vec::new(),
            without_slot: share,
        }
    }

    pub(crate) fn fill(&mut self, by_slot: impl Iterator<Item = f64>, without_slot: f64) {
        self.by_slot.clear();
        self.by_slot.extend(by_slot);
        self.without_slot = without_slot;
    }

    /// The share of all keys of a bucket together: by the traffic `offered` in each slot at the division, so
    /// that the shares of all that divide make up the whole.
    pub(crate) fn of_all(&self, slots: impl Iterator<Item = u32>, offered: &[f64]) -> f64 {
        let (mut whole, mut part) = (0.0, 0.0);
        for slot in slots {
            let offered = offered.get(slot as usize).copied().unwrap_or_default();
            whole += offered;
            part += offered * self.of(slot);
        }
        if whole > 0.0 {
            part / whole
        } else {
            self.without_slot
        }
    }

    /// The share of a key, by its slot.
    pub(crate) fn of(&self, slot: u32) -> f64 {
        self.by_slot
            .get(slot as usize)
            .copied()
            .unwrap_or(self.without_slot)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::all(0.0)
    }
}

impl Traffic {
    #[inline]
    pub(crate) fn add(&mut self, slot: usize, offered: f64) {
        if self.fresh.len() <= slot {
            self.fresh.resize(slot + 1, 0.0);
        }
        self.fresh[slot] += offered;
    }

    /// Ends a report. `span` is the time that it covers, `None` if it shows nothing about the present rate.
    pub(crate) fn settle(&mut self, span: Option<Duration>) {
        let Some(span) = span
            .map(|span| span.as_secs_f64())
            .filter(|span| *span > 0.0)
        else {
            self.fresh.fill(0.0);
            return;
        };
        let first = !std::mem::replace(&mut self.has_shown, true);
        let kept = if first {
            0.0
        } else {
            (-span / parameters::SHARE_TIME.as_secs_f64()).exp()
        };
        self.rates.resize(self.fresh.len(), 0.0);
        for (rate, fresh) in self.rates.iter_mut().zip(&mut self.fresh) {
            *rate = kept * *rate + (1.0 - kept) * std::mem::take(fresh) / span;
        }
    }

    /// Forgets the parts of an incomplete report.
    pub(crate) fn discard_unfinished(&mut self) {
        self.fresh.fill(0.0);
    }

    /// The smoothed rate of one key in requests/s.
    pub(crate) fn rate(&self, slot: usize) -> f64 {
        self.rates.get(slot).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rate_is_exact_then_smoothed() {
        let mut traffic = Traffic::default();
        traffic.add(1, 50.0);
        traffic.settle(Some(Duration::from_millis(500)));
        assert_eq!(
            (traffic.rate(0), traffic.rate(1), traffic.rate(2)),
            (0.0, 100.0, 0.0)
        );
        traffic.settle(Some(parameters::SHARE_TIME));
        assert!(
            (traffic.rate(1) - 100.0 / std::f64::consts::E).abs() < 1e-9,
            "{}",
            traffic.rate(1)
        );
    }

    #[test]
    fn report_without_a_span_shows_no_rate() {
        let mut traffic = Traffic::default();
        traffic.add(0, 1_000.0);
        traffic.settle(None);
        assert!(!traffic.has_shown);
        traffic.settle(Some(Duration::from_secs(1)));
        assert_eq!(
            (traffic.has_shown, traffic.rate(0)),
            (true, 0.0),
            "its requests are not counted later either"
        );
    }
}
