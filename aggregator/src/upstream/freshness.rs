//! The age of the controller's directives: which of the zone's own reports the controller is known to have
//! received, and when those were sent. An aggregator in between cannot make directives look fresher than they
//! are.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::directive::Directives;
use plimsoll_core::law::parameters;
use plimsoll_core::quantity::MonoTime;

/// Maximum number of unconfirmed reports with a remembered time. Beyond it later ones replace the last. At ten a
/// second, as below another aggregator, this covers 6 s.
const SENT_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Freshness {
    /// Unconfirmed reports of the present stream, and when they were sent.
    sent: VecDeque<(u64, MonoTime)>,
    /// The time when the latest confirmed report was sent, and the arrival of its confirmation.
    confirmed: Option<(MonoTime, MonoTime)>,
    /// The latest message with the age of the parent's own directives, and that age.
    parent_age: Option<(MonoTime, Duration)>,
    /// Number of aggregators between this one and the controller, as far as the parent knows.
    pub(crate) hops: u32,
    /// Report interval requested by the parent; `None` while it leaves that to its child.
    pub(crate) interval: Option<Duration>,
}

impl Freshness {
    /// A new stream begins. Its confirmations start over; ages stay as they are. The number of aggregators above
    /// stays if a controller led them: in a loop without one, the numbers of all members have only grown.
    pub(crate) fn open(&mut self) {
        self.sent.clear();
        self.interval = None;
        if self.confirmed.is_none() {
            self.hops = 0;
        }
    }

    pub(crate) fn on_report(&mut self, now: MonoTime, seq: u64) {
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_back();
        }
        self.sent.push_back((seq, now));
    }

    /// A message of the parent was applied. Returns the time when the latest report was sent that
    /// it confirms anew.
    pub(crate) fn on_message(&mut self, now: MonoTime, message: &Directives) -> Option<MonoTime> {
        let mut confirmed = None;
        let echo = message.echo;
        self.hops = message.above;
        self.interval = message.report_interval.or(self.interval);
        while let Some((seq, sent)) = self.sent.front().copied()
            && seq <= echo.confirmed
        {
            self.sent.pop_front();
            self.confirmed = Some((sent, now));
            confirmed = Some(sent);
        }
        if let Some(age) = message.upstream_age {
            self.parent_age = Some((now, age));
        }
        confirmed
    }

    /// Returns true while a controller leads: it has confirmed a report that was sent recently. A
    /// confirmation takes longer through other aggregators. A parent that sends messages without receiving
    /// reports confirms nothing.
    pub(crate) fn is_led(&self, now: MonoTime) -> bool {
        let more = parameters::CONTROLLER_SILENT_MORE.saturating_mul(self.hops);
        let silent_after = parameters::CONTROLLER_SILENT.saturating_add(more);
        self.confirmed
            .is_some_and(|(sent, _)| now.since(sent) <= silent_after)
    }

    /// The time since the controller last covered a roll-up of this zone; `None` if it never did.
    pub(crate) fn age(&self, now: MonoTime) -> Option<Duration> {
        let own = now.since(self.confirmed?.1);
        let parent = self
            .parent_age
            .map_or(Duration::ZERO, |(at, age)| age + now.since(at));
        Some(own.max(parent))
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
        let echo = Echo {
            covered: seq,
            confirmed: seq,
        };
        Directives {
            echo,
            upstream_age,
            ..Directives::default()
        }
    }

    /// The time that counts is when the confirmed report was sent, not when its confirmation arrived.
    #[test]
    fn controller_leads_while_it_confirms_recent_reports() {
        let mut freshness = Freshness::default();
        assert!(!freshness.is_led(at(0)));
        freshness.on_report(at(0), 1);
        freshness.on_report(at(500), 2);
        assert!(
            !freshness.is_led(at(500)),
            "a sent report is not a confirmed one"
        );
        freshness.on_message(at(1_900), &confirms(1, None));
        assert!(freshness.is_led(at(2_000)));
        assert!(!freshness.is_led(at(2_001)));
        freshness.on_message(at(2_400), &confirms(2, None));
        assert!(freshness.is_led(at(2_500)));
        assert!(!freshness.is_led(at(2_501)));
    }

    #[test]
    fn stalled_confirmation_means_no_leader() {
        let mut freshness = Freshness::default();
        freshness.on_report(at(0), 1);
        for ms in (100..10_000).step_by(100) {
            freshness.on_message(at(ms), &confirms(1, Some(Duration::ZERO)));
            assert_eq!(freshness.is_led(at(ms)), ms <= 2_000, "{ms}");
            assert_eq!(freshness.age(at(ms)), Some(at(ms).since(at(100))), "{ms}");
        }
    }

    #[test]
    fn each_aggregator_adds_a_second_to_confirmation() {
        for (above, silent_after) in [(0, 2_000), (1, 3_000), (2, 4_000), (4, 6_000)] {
            let mut freshness = Freshness::default();
            freshness.on_report(at(0), 1);
            freshness.on_message(
                at(100),
                &Directives {
                    above,
                    ..confirms(1, None)
                },
            );
            assert!(freshness.is_led(at(silent_after)), "{above}");
            assert!(!freshness.is_led(at(silent_after + 1)), "{above}");
        }
        let mut freshness = Freshness::default();
        freshness.on_report(at(0), 1);
        freshness.on_message(
            at(0),
            &Directives {
                above: u32::MAX,
                ..confirms(1, None)
            },
        );
        assert!(
            freshness.is_led(at(u64::from(u32::MAX))),
            "no number is too large"
        );
    }

    #[test]
    fn requested_interval_lasts_for_its_stream() {
        let mut freshness = Freshness::default();
        let requests = |ms| Directives {
            report_interval: Some(Duration::from_millis(ms)),
            ..Directives::default()
        };
        for (message, interval) in [
            (Directives::default(), None),
            (requests(100), Some(100)),
            (requests(250), Some(250)),
        ] {
            freshness.on_message(at(0), &message);
            assert_eq!(freshness.interval, interval.map(Duration::from_millis));
        }
        freshness.on_message(at(0), &Directives::default());
        assert_eq!(freshness.interval, Some(Duration::from_millis(250)));
        freshness.open();
        assert_eq!(freshness.interval, None);
    }

    #[test]
    fn parent_age_grows_since_its_message() {
        let mut freshness = Freshness::default();
        freshness.on_report(at(0), 1);
        freshness.on_message(at(100), &confirms(1, Some(Duration::from_secs(5))));
        assert_eq!(freshness.age(at(1_100)), Some(Duration::from_secs(6)));
    }

    #[test]
    fn new_stream_keeps_age_and_restarts_numbers() {
        let mut freshness = Freshness::default();
        freshness.on_report(at(0), 7);
        freshness.on_message(at(100), &confirms(7, None));
        freshness.on_report(at(500), 8);
        freshness.open();
        assert!(freshness.is_led(at(2_000)), "a short break is no silence");
        freshness.on_report(at(1_000), 1);
        freshness.on_message(at(1_100), &confirms(0, None));
        assert!(
            !freshness.is_led(at(2_100)),
            "nothing of this stream is confirmed"
        );
        freshness.on_message(at(2_200), &confirms(1, None));
        assert!(freshness.is_led(at(3_000)));
    }

    /// A parent that confirms nothing for long costs no memory, and a later confirmation is never taken for
    /// fresher than it is.
    #[test]
    fn times_of_unconfirmed_reports_are_bounded() {
        let mut freshness = Freshness::default();
        (1..=200).for_each(|seq| freshness.on_report(at(seq * 100), seq));
        assert_eq!(freshness.sent.len(), SENT_MAX);
        freshness.on_message(at(20_000), &confirms(199, None));
        assert!(
            !freshness.is_led(at(20_000)),
            "report 63, the last one remembered, is old"
        );
        freshness.on_message(at(20_001), &confirms(200, None));
        assert!(freshness.is_led(at(20_001)));
    }
}
