//! One direction of one simulated stream: it delays messages and keeps their order. A lost message arrives late,
//! together with the next one, as over TCP.

use std::collections::VecDeque;

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
    /// Lost messages, which arrive together with the next one that is not lost.
    lost: Vec<M>,
}

impl<M> Link<M> {
    pub(crate) fn new(quality: Quality) -> Self {
        Self {
            quality,
            last: SimTime::default(),
            in_flight: VecDeque::new(),
            lost: Vec::new(),
        }
    }

    /// Sends a message and returns the times at which messages arrive, one for each. A lost message is sent again, and
    /// arrives together with the next one. While `cut`, every message is lost.
    pub(crate) fn send(
        &mut self,
        now: SimTime,
        message: M,
        cut: bool,
        rng: &mut SmallRng,
    ) -> Vec<SimTime> {
        self.lost.push(message);
        if cut || (self.quality.loss > 0.0 && unit(rng) < self.quality.loss) {
            return Vec::new();
        }
        let arrival = now.plus(self.quality.delay + span(rng, self.quality.jitter));
        self.last = self.last.max(arrival);
        let arrivals = vec![self.last; self.lost.len()];
        self.in_flight.extend(self.lost.drain(..));
        arrivals
    }

    pub(crate) fn take(&mut self) -> Option<M> {
        self.in_flight.pop_front()
    }

    /// Returns when the other side notices that the stream ended `now`.
    pub(crate) fn ends(&self, now: SimTime) -> SimTime {
        self.last.max(now.plus(self.quality.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    #[test]
    fn messages_keep_their_order_under_jitter() {
        let mut rng = generator(1, Purpose::Network);
        let mut link = Link::new(Quality {
            delay: 1_000,
            jitter: 5_000,
            loss: 0.0,
        });
        let arrivals: Vec<SimTime> = (1..=100)
            .flat_map(|seq| link.send(SimTime(seq * 100), seq, false, &mut rng))
            .collect();
        assert!(arrivals.is_sorted());
        assert!(
            arrivals
                .iter()
                .zip(1..)
                .all(|(at, seq)| at.0 >= seq * 100 + 1_000)
        );
        assert!((1..=100).all(|seq| link.take() == Some(seq)));
        assert!(link.take().is_none());
    }

    #[test]
    fn lost_messages_arrive_with_the_next() {
        let mut rng = generator(1, Purpose::Network);
        let mut link = Link::new(Quality {
            delay: 0,
            jitter: 0,
            loss: 0.0,
        });
        assert_eq!(link.send(SimTime(0), 1, true, &mut rng), []);
        assert_eq!(link.send(SimTime(1), 2, true, &mut rng), []);
        assert_eq!(link.send(SimTime(2), 3, false, &mut rng), [SimTime(2); 3]);
        assert_eq!(
            [link.take(), link.take(), link.take(), link.take()],
            [Some(1), Some(2), Some(3), None]
        );
        let mut lossy = Link::new(Quality {
            delay: 0,
            jitter: 0,
            loss: 0.2,
        });
        let lost = (0..10_000).filter(|at| lossy.send(SimTime(*at), 1, false, &mut rng).is_empty());
        assert!((1_800..2_200).contains(&lost.count()));
    }
}
