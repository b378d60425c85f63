//! The number of a session's decisions that its aggregator has merged or read. The rest is what a service would lose if it
//! ended now. The outbox knows the same by key, and only for the present stream.

use std::collections::VecDeque;

/// Maximum number of reports that wait for an acknowledgement one by one; later ones join the last.
const REPORTS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Delivery {
    /// The reports of the present stream without an acknowledgement: the number of each, and its new decisions.
    sent: VecDeque<(u64, u64)>,
    /// Decisions sent on earlier streams without an acknowledgement. The first counts of the present one repeat them.
    /// Another session repeats those of keys that have moved to it, and does not count them as new: they count here.
    repeated: u64,
    /// Merged decisions of all streams.
    pub(super) acknowledged: u64,
}

impl Delivery {
    /// Begins a new stream, which repeats everything unacknowledged.
    pub(super) fn open(&mut self) {
        self.repeated += self.take(self.sent.len());
    }

    /// Records a report with counts: `new` decisions that no earlier report carried. The first one of a stream repeats
    /// what was not acknowledged before.
    pub(super) fn on_sent(&mut self, seq: u64, new: u64) {
        let decisions = new + std::mem::take(&mut self.repeated);
        if decisions == 0 {
            return;
        }
        let is_full = self.sent.len() >= REPORTS_MAX;
        match self.sent.back_mut() {
            Some(last) if is_full => *last = (seq, last.1 + decisions),
            _ => self.sent.push_back((seq, decisions)),
        }
    }

    /// Records that the aggregator has merged the reports of this stream up to `seq`.
    pub(super) fn on_covered(&mut self, seq: u64) {
        let covered = self.sent.iter().take_while(|(at, _)| *at <= seq).count();
        self.acknowledged += self.take(covered);
    }

    /// Removes the first `count` reports. Returns their decisions.
    fn take(&mut self, count: usize) -> u64 {
        let taken = self.sent.drain(..count);
        taken.map(|(_, decisions)| decisions).sum()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn covered_or_repeated_reports_count() {
        let mut delivery = Delivery::default();
        delivery.on_sent(2, 5);
        delivery.on_sent(3, 0);
        delivery.on_sent(4, 7);
        delivery.on_covered(3);
        assert_eq!(delivery.acknowledged, 5);
        delivery.open();
        delivery.on_covered(9);
        assert_eq!(
            delivery.acknowledged, 5,
            "the reports of the former stream are void"
        );
        delivery.on_sent(2, 1);
        delivery.on_covered(1);
        assert_eq!(delivery.acknowledged, 5);
        delivery.on_covered(2);
        assert_eq!(delivery.acknowledged, 13);
    }

    #[test]
    fn waiting_reports_are_bounded_without_loss() {
        let mut delivery = Delivery::default();
        (1..=1_000).for_each(|seq| delivery.on_sent(seq, 1));
        assert!(delivery.sent.len() <= REPORTS_MAX);
        delivery.on_covered(999);
        assert!(delivery.acknowledged < 1_000);
        delivery.on_covered(1_000);
        assert_eq!(delivery.acknowledged, 1_000);
    }
}
