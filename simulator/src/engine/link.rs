//! One direction of one stream: it delays messages, keeps their order, and may lose them.

use std::collections::VecDeque;

use plimsoll_core::directive::Directives;
use plimsoll_core::report::Report;
use rand::rngs::SmallRng;

use crate::engine::clock::SimTime;
use crate::rng::{span, unit};

/// Delay and jitter in microseconds, loss as a probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    pub(crate) loss: f64,
}

#[derive(Debug)]
pub(crate) struct Link<M> {
    quality: Quality,
    last: SimTime,
    in_flight: VecDeque<M>,
    /// Content of lost messages, which the next delivered message carries.
    lost: Option<M>,
}

/// A message with content that survives in the next one.
pub(crate) trait Carried {
    /// Returns `later` with the content of `self`, which was lost.
    fn carried_by(self, later: Self) -> Self;
}

impl<M: Carried> Link<M> {
    pub(crate) fn new(quality: Quality) -> Self {
        Self { quality, last: SimTime::default(), in_flight: VecDeque::new(), lost: None }
    }

    /// Sends a message and returns the time of its arrival, or `None` if it is lost. A `cut` loses
    /// every message.
    pub(crate) fn send(
        &mut self,
        now: SimTime,
        message: M,
        cut: bool,
        rng: &mut SmallRng,
    ) -> Option<SimTime> {
        let message = match self.lost.take() {
            Some(lost) => lost.carried_by(message),
            None => message,
        };
        if cut || (self.quality.loss > 0.0 && unit(rng) < self.quality.loss) {
            self.lost = Some(message);
            return None;
        }
        let arrival = now.plus(self.quality.delay + span(rng, self.quality.jitter));
        self.last = self.last.max(arrival);
        self.in_flight.push_back(message);
        Some(self.last)
    }

    pub(crate) fn take(&mut self) -> Option<M> {
        self.in_flight.pop_front()
    }

    /// Returns when the other side notices that the stream ended `now`.
    pub(crate) fn ends(&self, now: SimTime) -> SimTime {
        self.last.max(now.plus(self.quality.delay))
    }
}

impl Carried for Report {
    fn carried_by(self, later: Self) -> Self {
        // Reports are cumulative.
        self.merge(later)
    }
}

impl Carried for Directives {
    fn carried_by(self, later: Self) -> Self {
        // A child applies buckets in order, so the later directive for a bucket wins.
        let mut buckets = self.buckets;
        buckets.extend(later.buckets);
        let mut kills = self.kills;
        for (bucket, generation) in later.kills {
            kills.entry(bucket).or_default().merge(generation);
        }
        Self {
            buckets,
            kills,
            parent: later.parent.or(self.parent),
            children: later.children.or(self.children),
            policy_hash: later.policy_hash.or(self.policy_hash),
            upstream_age: later.upstream_age.or(self.upstream_age),
            report_interval: later.report_interval.or(self.report_interval),
            ..later
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};
    use plimsoll_core::report::InstanceId;

    fn message(seq: u64) -> Directives {
        Directives { seq, parent: (seq == 1).then_some(InstanceId(7)), ..Directives::default() }
    }

    #[test]
    fn messages_keep_their_order_under_jitter() {
        let mut rng = generator(1, Purpose::Network);
        let mut link = Link::new(Quality { delay: 1_000, jitter: 5_000, loss: 0.0 });
        let arrivals: Vec<SimTime> = (1..=100)
            .map(|seq| link.send(SimTime(seq * 100), message(seq), false, &mut rng).unwrap())
            .collect();
        assert!(arrivals.is_sorted());
        assert!(arrivals.iter().zip(1..).all(|(at, seq)| at.0 >= seq * 100 + 1_000));
        assert!((1..=100).all(|seq| link.take().is_some_and(|message| message.seq == seq)));
        assert!(link.take().is_none());
    }

    #[test]
    fn next_message_carries_the_content_of_lost_ones() {
        let mut rng = generator(1, Purpose::Network);
        let mut link = Link::new(Quality { delay: 0, jitter: 0, loss: 0.0 });
        assert_eq!(link.send(SimTime(0), message(1), true, &mut rng), None);
        assert_eq!(link.send(SimTime(1), message(2), true, &mut rng), None);
        assert_eq!(link.send(SimTime(2), message(3), false, &mut rng), Some(SimTime(2)));
        let carried = link.take().unwrap();
        assert_eq!((carried.seq, carried.parent), (3, Some(InstanceId(7))));
        let mut lossy = Link::new(Quality { delay: 0, jitter: 0, loss: 0.2 });
        let lost = (0..10_000).filter(|at| lossy.send(SimTime(*at), message(1), false, &mut rng).is_none());
        assert!((1_800..2_200).contains(&lost.count()));
    }
}
