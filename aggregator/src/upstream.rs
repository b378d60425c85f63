//! How fresh the word from above is: which of the zone's own reports the controller is known to have heard, and how
//! long ago. No relay can renew that.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::directive::Directives;
use plimsoll_core::law::Parameters;
use plimsoll_core::quantity::MonoTime;

/// How many unconfirmed reports are told apart; at ten a second, as below another aggregator, these are 6 s.
const SENT_MAX: usize = 64;

/// What is known of the way up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    /// Reports of the present stream that are not confirmed yet, and when they were sent.
    sent: VecDeque<(u64, MonoTime)>,
    /// When the latest confirmed report was sent, and when that became known.
    confirmed: Option<(MonoTime, MonoTime)>,
    /// When the parent last said how old its own word is, and how old it was.
    told: Option<(MonoTime, Duration)>,
    /// How many aggregators there are on the way to the controller, as far as the parent knows.
    above: u32,
    /// How often the parent wants to hear; `None` while it leaves that to its child.
    interval: Option<Duration>,
}

impl Upstream {
    /// A new stream begins: its receipts start over, what is known does not become fresher by that.
    pub(crate) fn open(&mut self) {
        self.sent.clear();
        self.interval = None;
    }

    /// A report was sent.
    pub(crate) fn on_report(&mut self, now: MonoTime, seq: u64) {
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_back();
        }
        self.sent.push_back((seq, now));
    }

    /// A message of the parent was applied.
    pub(crate) fn on_message(&mut self, now: MonoTime, message: &Directives) {
        let echo = message.echo;
        self.above = message.above;
        self.interval = message.report_interval.or(self.interval);
        while let Some((seq, sent)) = self.sent.front().copied() {
            if seq > echo.confirmed {
                break;
            }
            self.sent.pop_front();
            self.confirmed = Some((sent, now));
        }
        if let Some(age) = message.upstream_age {
            self.told = Some((now, age));
        }
    }

    /// How many aggregators there are on the way to the controller.
    pub(crate) const fn above(&self) -> u32 {
        self.above
    }

    /// How often the parent wants to hear.
    pub(crate) const fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Whether the controller is there: it has confirmed a report that was sent lately; a receipt takes longer where it
    /// passes through other aggregators. A parent that goes on talking without listening confirms nothing.
    pub(crate) fn is_led(&self, now: MonoTime, parameters: &Parameters) -> bool {
        let more = parameters.controller_silent_more.saturating_mul(self.above);
        let silent_after = parameters.controller_silent.saturating_add(more);
        self.confirmed.is_some_and(|(sent, _)| now.since(sent) <= silent_after)
    }

    /// How long ago the controller last covered a roll-up of this zone; `None` if it never did.
    pub(crate) fn age(&self, now: MonoTime) -> Option<Duration> {
        let own = now.since(self.confirmed?.1);
        let told = self.told.map_or(Duration::ZERO, |(at, age)| age + now.since(at));
        Some(own.max(told))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::report::Echo;

    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn confirms(seq: u64, upstream_age: Option<Duration>) -> Directives {
        let echo = Echo { covered: seq, confirmed: seq };
        Directives { echo, upstream_age, ..Directives::default() }
    }

    /// What counts is when the confirmed report was sent, not when the word of it came.
    #[test]
    fn a_controller_leads_while_it_confirms_what_was_sent_lately() {
        let mut upstream = Upstream::default();
        assert!(!upstream.is_led(at(0), &Parameters::default()));
        upstream.on_report(at(0), 1);
        upstream.on_report(at(500), 2);
        assert!(!upstream.is_led(at(500), &Parameters::default()), "sent is not heard");
        upstream.on_message(at(1_900), &confirms(1, None));
        assert!(upstream.is_led(at(2_000), &Parameters::default()));
        assert!(!upstream.is_led(at(2_001), &Parameters::default()));
        upstream.on_message(at(2_400), &confirms(2, None));
        assert!(upstream.is_led(at(2_500), &Parameters::default()));
        assert!(!upstream.is_led(at(2_501), &Parameters::default()));
    }

    #[test]
    fn a_parent_that_talks_without_listening_does_not_lead() {
        let mut upstream = Upstream::default();
        upstream.on_report(at(0), 1);
        for ms in (100..10_000).step_by(100) {
            upstream.on_message(at(ms), &confirms(1, Some(Duration::ZERO)));
            assert_eq!(upstream.is_led(at(ms), &Parameters::default()), ms <= 2_000, "{ms}");
            assert_eq!(upstream.age(at(ms)), Some(at(ms).since(at(100))), "{ms}");
        }
    }

    #[test]
    fn below_other_aggregators_a_receipt_may_take_a_second_longer_for_each() {
        for (above, silent_after) in [(0, 2_000), (1, 3_000), (2, 4_000), (4, 6_000)] {
            let mut upstream = Upstream::default();
            upstream.on_report(at(0), 1);
            upstream.on_message(at(100), &Directives { above, ..confirms(1, None) });
            assert!(upstream.is_led(at(silent_after), &Parameters::default()), "{above}");
            assert!(!upstream.is_led(at(silent_after + 1), &Parameters::default()), "{above}");
        }
        let mut upstream = Upstream::default();
        upstream.on_report(at(0), 1);
        upstream.on_message(at(0), &Directives { above: u32::MAX, ..confirms(1, None) });
        assert!(upstream.is_led(at(u64::from(u32::MAX)), &Parameters::default()), "no number is too large");
    }

    #[test]
    fn what_a_parent_wants_to_hear_holds_until_it_says_otherwise_and_for_its_stream() {
        let mut upstream = Upstream::default();
        let asks =
            |ms| Directives { report_interval: Some(Duration::from_millis(ms)), ..Directives::default() };
        for (message, interval) in
            [(Directives::default(), None), (asks(100), Some(100)), (asks(250), Some(250))]
        {
            upstream.on_message(at(0), &message);
            assert_eq!(upstream.interval(), interval.map(Duration::from_millis));
        }
        upstream.on_message(at(0), &Directives::default());
        assert_eq!(upstream.interval(), Some(Duration::from_millis(250)));
        upstream.open();
        assert_eq!(upstream.interval(), None);
    }

    #[test]
    fn a_relay_adds_its_own_wait_to_what_it_was_told() {
        let mut upstream = Upstream::default();
        upstream.on_report(at(0), 1);
        upstream.on_message(at(100), &confirms(1, Some(Duration::from_secs(5))));
        assert_eq!(upstream.age(at(1_100)), Some(Duration::from_secs(6)));
    }

    #[test]
    fn a_new_stream_takes_nothing_back_and_its_numbers_are_its_own() {
        let mut upstream = Upstream::default();
        upstream.on_report(at(0), 7);
        upstream.on_message(at(100), &confirms(7, None));
        upstream.on_report(at(500), 8);
        upstream.open();
        assert!(upstream.is_led(at(2_000), &Parameters::default()), "a short break is no silence");
        upstream.on_report(at(1_000), 1);
        upstream.on_message(at(1_100), &confirms(0, None));
        assert!(!upstream.is_led(at(2_100), &Parameters::default()), "nothing of this stream is confirmed");
        upstream.on_message(at(2_200), &confirms(1, None));
        assert!(upstream.is_led(at(3_000), &Parameters::default()));
    }

    /// A parent that covers nothing for long costs no memory, and a later receipt is never taken for fresher than it is.
    #[test]
    fn reports_without_a_receipt_are_told_apart_up_to_a_bound() {
        let mut upstream = Upstream::default();
        (1..=200).for_each(|seq| upstream.on_report(at(seq * 100), seq));
        assert_eq!(upstream.sent.len(), SENT_MAX);
        upstream.on_message(at(20_000), &confirms(199, None));
        assert!(
            !upstream.is_led(at(20_000), &Parameters::default()),
            "report 63, the last one told apart, is old"
        );
        upstream.on_message(at(20_001), &confirms(200, None));
        assert!(upstream.is_led(at(20_001), &Parameters::default()));
    }
}
