//! The grants of a zone to clients that have just joined: tokens for their first group of requests,
//! which their small parts of the pool cannot have yet.

use std::time::Duration;

use crate::decision::token_bucket::TokenCount;
use crate::law::parameters;

/// The requests that a zone may still grant. They return with time while the zone uses less than
/// its room, so that a crowd of clients that joins together has no more than a few clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grants {
    requests: f64,
    /// The bound of `requests` at the present room; 0 while as much is offered.
    most: f64,
}

impl Default for Grants {
    /// Begins full: the first client of a zone has just joined, too.
    fn default() -> Self {
        Self {
            requests: f64::INFINITY,
            most: 0.0,
        }
    }
}

impl Grants {
    /// Accounts for a `span` with `offered` requests/s at a zone with room for `room` requests/s; 0
    /// if its bucket is overloaded. Without spare room nothing is granted, and grants begin anew.
    pub fn on_span(&mut self, room: f64, offered: f64, span: Duration) {
        let in_time = parameters::GRANT_TIME.as_secs_f64() * room;
        self.most = if offered < room {
            parameters::GRANT_REQUESTS.min(in_time)
        } else {
            0.0
        };
        let back = span.as_secs_f64() / parameters::GRANT_REFILL.as_secs_f64();
        self.requests = (self.requests + self.most * back).min(self.most);
    }

    /// Takes whole tokens for a client that lacks `wanted` of them. Returns `None` while there are too few: the
    /// client waits.
    pub fn take(&mut self, wanted: f64) -> Option<TokenCount> {
        let granted = wanted.min(self.most).floor();
        if granted < 1.0 || granted > self.requests {
            return None;
        }
        self.requests -= granted;
        Some(TokenCount::new(granted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn granted(grants: &mut Grants, wanted: &[f64]) -> Vec<Option<u64>> {
        wanted
            .iter()
            .map(|wanted| grants.take(*wanted).map(TokenCount::whole))
            .collect()
    }

    #[test]
    fn lacking_clients_are_granted_first() {
        for (room, wanted, expected) in [
            (
                1_000.0,
                &[20.5, 20.5, 20.5, 5.0, 20.0][..],
                &[Some(20), Some(20), Some(20), None, None][..],
            ),
            (1_000.0, &[50.0, 20.0, 5.0], &[Some(50), None, Some(5)]),
            (30.0, &[20.0, 20.0, 10.0], &[Some(20), None, Some(10)]),
            (10.0, &[20.0, 20.0], &[Some(10), None]), // all that a small zone has
            (1_000.0, &[0.5, 0.0, -3.0], &[None, None, None]),
            (0.0, &[20.0], &[None]),
        ] {
            let mut grants = Grants::default();
            grants.on_span(room, 0.0, Duration::ZERO);
            assert_eq!(granted(&mut grants, wanted), expected, "{room} {wanted:?}");
        }
    }

    #[test]
    fn grants_return_with_the_room() {
        for (room, offered, ms, back) in [
            (1_000.0, 999.0, 1_000, 30),
            (1_000.0, 0.0, 9_000, 60),
            (10.0, 0.0, 1_000, 5),
        ] {
            let mut grants = Grants::default();
            grants.on_span(room, offered, Duration::ZERO);
            while grants.take(1.0).is_some() {}
            grants.on_span(room, offered, span(ms));
            let got = std::iter::from_fn(|| grants.take(1.0)).count();
            assert_eq!(got, back, "{offered} of {room} for {ms} ms");
        }
    }

    #[test]
    fn full_zone_grants_nothing() {
        for (room, offered) in [(0.0, 0.0), (0.0, 5_000.0), (1_000.0, 1_000.0)] {
            let mut grants = Grants::default();
            grants.on_span(room, offered, span(9_000));
            assert_eq!(
                granted(&mut grants, &[20.0, 1.0]),
                [None, None],
                "{offered} of {room}"
            );
            grants.on_span(1_000.0, 0.0, span(100));
            assert_eq!(
                granted(&mut grants, &[20.0, 3.0]),
                [None, Some(3)],
                "{offered} of {room}"
            );
        }
    }

    proptest! {
        #[test]
        fn grants_of_any_time_are_bounded(
            steps in prop::collection::vec((0.0..1e4_f64, 0.0..1e4_f64, 0..3_000u64, 0.0..100.0_f64), 1..50),
        ) {
            let (mut grants, mut given, mut seconds) = (Grants::default(), 0.0, 0.0);
            for (room, offered, ms, wanted) in steps {
                grants.on_span(room, offered, span(ms));
                given += grants.take(wanted).map_or(0.0, TokenCount::as_f64);
                seconds += span(ms).as_secs_f64();
            }
            let refills = seconds / parameters::GRANT_REFILL.as_secs_f64();
            prop_assert!(given <= parameters::GRANT_REQUESTS * (1.0 + refills) + 1e-6, "{given} in {seconds} s");
        }
    }
}
