//! A client's part of a guard: the token bucket that cuts a surge before any parent has counted it.

mod slack;

pub use slack::{SLACK_PERIOD, Slack};

use std::time::Duration;

use crate::decision::token_bucket::Tokens;
use crate::law::Parameters;
use crate::quantity::{Limit, Rate};

/// The guard of one key as a zone sends it, the same to each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneGuard {
    /// The limit of the bucket: a limit of 0 allows no burst.
    pub limit: Limit,
    /// The rate of all guards of the zone together.
    pub rate: Rate,
    /// The offered rate of the zone; `None` if unknown.
    pub offered: Option<Rate>,
    /// The number of clients that share the guard; 0 counts as 1, the client itself.
    pub clients: u32,
}

/// The guard of one client: rate and depth of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// The refill rate in tokens/s.
    pub rate: Rate,
    /// The depth in tokens.
    pub depth: Tokens,
}

impl Guard {
    /// Returns the part of a client that offers `own`, `None` before its first interval is over: `g =
    /// G*((1-eta)*min(1, o/O) + eta/n)`, or `G*eta/n` while `o` is unknown; `o/O` counts as `1/n` where
    /// nothing is offered. The depth is `0.05 s*g + 2*sqrt(0.2 s*g) + 3` requests (`depth_time`,
    /// `depth_noise` and `depth_requests` of [`Parameters`]): a fixed time at the rate, the chance
    /// fluctuation, and a few requests for a client with a tiny part.
    pub fn part_of(zone: &ZoneGuard, own: Option<Rate>, parameters: &Parameters) -> Self {
        let clients = f64::from(zone.clients.max(1));
        let even = parameters.even_share;
        let offered = zone.offered.unwrap_or(Rate::ZERO).per_second();
        let of_traffic = match own {
            None => 0.0,
            Some(_) if offered <= 0.0 => 1.0 / clients,
            Some(own) => (own.per_second() / offered).min(1.0),
        };
        let rate = zone.rate.times((1.0 - even) * of_traffic + even / clients);
        let denied = zone.limit == Limit::PerSecond(Rate::ZERO);
        let depth = if denied { Tokens::NONE } else { burst(rate.per_second(), parameters) };
        Self { rate, depth }
    }
}

fn burst(rate: f64, parameters: &Parameters) -> Tokens {
    let noise = 2.0 * (parameters.depth_noise.as_secs_f64() * rate).sqrt();
    Tokens::new(parameters.depth_time.as_secs_f64() * rate + noise + parameters.depth_requests)
}

/// Returns a client's smoothed offered rate after `measured` over `span`: a moving average with the time
/// constant `share_time`. The first measurement is taken as it is.
pub fn client_rate(held: Option<Rate>, measured: Rate, span: Duration, parameters: &Parameters) -> Rate {
    let Some(held) = held else { return measured };
    let kept = (-span.as_secs_f64() / parameters.share_time.as_secs_f64()).exp();
    held.times(kept) + measured.times(1.0 - kept)
}

#[cfg(test)]
mod tests {
    use std::ops::Add;

    use super::*;
    use proptest::prelude::*;

    fn rate(per_second: f64) -> Rate {
        Rate::new(per_second).unwrap()
    }

    fn zone(guard: f64, offered: Option<f64>, clients: u32) -> ZoneGuard {
        let limit = Limit::PerSecond(rate(1.0));
        ZoneGuard { limit, rate: rate(guard), offered: offered.map(rate), clients }
    }

    #[test]
    fn a_part_is_the_share_of_traffic_plus_an_even_part() {
        for (zone, own, expected) in [
            (zone(1000.0, Some(800.0), 4), Some(200.0), 1000.0 * (0.9 * 0.25 + 0.1 / 4.0)),
            (zone(1000.0, Some(800.0), 4), Some(0.0), 25.0),
            (zone(1000.0, Some(800.0), 4), Some(9e9), 925.0), // never more than all of it
            (zone(1000.0, Some(800.0), 4), None, 25.0),       // nothing measured yet
            (zone(1000.0, Some(0.0), 4), Some(200.0), 250.0),
            (zone(1000.0, None, 4), Some(200.0), 250.0),
            (zone(1000.0, Some(0.0), 4), None, 25.0),
            (zone(1000.0, Some(200.0), 1), Some(200.0), 1000.0),
            (zone(1000.0, Some(200.0), 0), Some(200.0), 1000.0),
            (zone(0.0, Some(200.0), 3), Some(200.0), 0.0),
        ] {
            let guard = Guard::part_of(&zone, own.map(rate), &Parameters::default());
            assert!((guard.rate.per_second() - expected).abs() < 1e-9, "{zone:?} {own:?}: {guard:?}");
        }
    }

    #[test]
    fn the_burst_grows_with_the_part_and_a_limit_of_zero_has_none() {
        for (guard, depth) in [(0.0, 3.0), (20.0, 1.0 + 4.0 + 3.0), (2000.0, 100.0 + 40.0 + 3.0)] {
            let zone = zone(guard, None, 1);
            let part = |zone| Guard::part_of(&zone, Some(Rate::ZERO), &Parameters::default());
            assert!((part(zone).depth.as_f64() - depth).abs() < 1e-6, "{guard}");
            let denied = ZoneGuard { limit: Limit::PerSecond(Rate::ZERO), ..zone };
            assert_eq!(part(denied).depth, Tokens::NONE);
        }
    }

    #[test]
    fn the_first_rate_is_taken_whole_and_two_thirds_of_a_change_after_a_second() {
        let parameters = Parameters::default();
        let second = Duration::from_secs(1);
        assert_eq!(client_rate(None, rate(70.0), second / 10, &parameters), rate(70.0));
        let grown = client_rate(Some(Rate::ZERO), rate(100.0), second, &parameters);
        assert!((grown.per_second() - 63.212).abs() < 1e-3, "{grown:?}");
        let mut stepwise = Rate::ZERO;
        for _ in 0..10 {
            stepwise = client_rate(Some(stepwise), rate(100.0), second / 10, &parameters);
        }
        assert!((stepwise.per_second() - grown.per_second()).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_parts_of_all_clients_make_up_the_guard(guard in 0.0..1e6_f64, own in prop::collection::vec(0.0..1e5_f64, 1..50)) {
            let offered: f64 = own.iter().sum();
            let zone = zone(guard, Some(offered), own.len() as u32);
            let part = |own| Guard::part_of(&zone, Some(rate(own)), &Parameters::default()).rate;
            let sum = own.into_iter().map(part).fold(Rate::ZERO, Rate::add);
            prop_assert!((sum.per_second() - guard).abs() <= 1e-9 * guard.max(1.0));
        }
    }
}
