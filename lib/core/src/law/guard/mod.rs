//! A client's part of a guard: the token bucket that cuts a surge before any parent has counted it.

mod slack;
mod two_periods;

pub use slack::{SLACK_PERIOD, Slack};
pub(crate) use two_periods::{TwoPeriods, USED_MIN};

use std::time::Duration;

use crate::decision::token_bucket::TokenCount;
use crate::directive::ZonePool;
use crate::law::parameters;
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
    pub depth: TokenCount,
}

impl Guard {
    /// Returns the part of a client that offers `own`, `None` before its first interval is over: `g =
    /// G*((1-eta)*min(1, o/O) + eta/n)`, or `G*eta/n` while `o` is unknown; `o/O` counts as `1/n` where
    /// nothing is offered. The depth is `0.05 s*g + 2*sqrt(0.2 s*g) + 3` requests (`DEPTH_TIME`,
    /// `DEPTH_NOISE` and `DEPTH_REQUESTS` of [`parameters`]): a fixed time at the rate, the chance
    /// fluctuation, and a few requests for a client with a tiny part.
    pub fn part_of(zone: &ZoneGuard, own: Option<Rate>) -> Self {
        let offered = zone.offered.unwrap_or(Rate::ZERO);
        let rate = zone
            .rate
            .times(part(own, offered, zone.clients, parameters::EVEN_SHARE));
        let denied = zone.limit == Limit::PerSecond(Rate::ZERO);
        let depth = depth(rate, parameters::DEPTH_REQUESTS);
        Self {
            rate,
            depth: if denied {
                TokenCount::NONE
            } else {
                TokenCount::new(depth)
            },
        }
    }

    /// Returns the part of a client in the headroom pool of a bucket where it offers `own`, `None`
    /// before its first interval is over: half by its share of the traffic and half evenly. The base
    /// depth is that of a guard with `POOL_REQUESTS`, or what few clients have each if that is more.
    /// The learned factor multiplies it, up to the largest of `POOL_DEPTH_REQUESTS`, the client's
    /// part of the zone's `burst`, and the depth for the client's largest `group`. Without headroom
    /// rate and depth are zero.
    pub fn pool(zone: &ZonePool, own: Option<Rate>, clients: u32, group: TokenCount) -> Self {
        let Some(of_all) = zone.rate.rate() else {
            return Self {
                rate: Rate::ZERO,
                depth: TokenCount::NONE,
            };
        };
        let part = part(own, zone.offered, clients, parameters::POOL_EVEN);
        let rate = of_all.times(part);
        let of_few = Self::depth_of_few(of_all, clients);
        let base = depth(rate, parameters::POOL_REQUESTS).max(of_few);
        let most = base
            .max(parameters::POOL_DEPTH_REQUESTS)
            .max(zone.burst.as_f64() * part)
            .max(group.as_f64());
        let depth = (zone.depth.as_f64() * base).min(most);
        Self {
            rate,
            depth: TokenCount::new(depth),
        }
    }

    /// Returns the depth of a pool for groups of `requests` that arrive together: at most
    /// `POOL_GROUP_MAX` of the limit, so that no group is worth more than a quarter of a second of
    /// it.
    pub fn depth_of_group(requests: f64, limit: Limit) -> TokenCount {
        let limit = limit.per_second().map_or(0.0, Rate::per_second);
        let most = parameters::POOL_GROUP_MAX.as_secs_f64() * limit;
        TokenCount::new((parameters::POOL_GROUP * requests).min(most))
    }

    /// Returns the depth that each of `clients` has of its pool for requests that arrive together,
    /// regardless of its offered rate: an even part of `min(POOL_FEW_REQUESTS, POOL_FEW_TIME *
    /// rate)`, where `rate` is the rate of all pools of the zone, at most `POOL_DEPTH_REQUESTS`.
    fn depth_of_few(rate: Rate, clients: u32) -> f64 {
        let in_time = parameters::POOL_FEW_TIME.as_secs_f64() * rate.per_second();
        let of_all = parameters::POOL_FEW_REQUESTS.min(in_time);
        parameters::POOL_DEPTH_REQUESTS.min(of_all / f64::from(clients.max(1)))
    }
}

/// The part of a client: by its share of the traffic, and the share `even` divided evenly. Nothing by traffic
/// while its own is unknown; `1 / n` where none is offered.
fn part(own: Option<Rate>, offered: Rate, clients: u32, even: f64) -> f64 {
    let clients = f64::from(clients.max(1));
    let of_traffic = match own {
        None => 0.0,
        Some(_) if offered == Rate::ZERO => 1.0 / clients,
        Some(own) => (own.per_second() / offered.per_second()).min(1.0),
    };
    (1.0 - even) * of_traffic + even / clients
}

/// The depth at a rate with `requests` to begin with.
fn depth(rate: Rate, requests: f64) -> f64 {
    let rate = rate.per_second();
    let noise = 2.0 * (parameters::DEPTH_NOISE.as_secs_f64() * rate).sqrt();
    parameters::DEPTH_TIME.as_secs_f64() * rate + noise + requests
}

/// Returns a client's smoothed offered rate after `measured` over `span`: a moving average with the time
/// constant `SHARE_TIME`. The first measurement is taken as it is.
pub fn client_rate(held: Option<Rate>, measured: Rate, span: Duration) -> Rate {
    let Some(held) = held else { return measured };
    let kept = (-span.as_secs_f64() / parameters::SHARE_TIME.as_secs_f64()).exp();
    held.times(kept) + measured.times(1.0 - kept)
}

#[cfg(test)]
mod tests {
    use std::ops::Add;

    use super::*;
    use crate::directive::{Headroom, PoolDepth};
    use proptest::prelude::*;

    fn rate(per_second: f64) -> Rate {
        Rate::new(per_second).unwrap()
    }

    fn zone(guard: f64, offered: Option<f64>, clients: u32) -> ZoneGuard {
        let limit = Limit::PerSecond(rate(1.0));
        ZoneGuard {
            limit,
            rate: rate(guard),
            offered: offered.map(rate),
            clients,
        }
    }

    #[test]
    fn part_is_traffic_share_plus_even_part() {
        for (zone, own, expected) in [
            (
                zone(1000.0, Some(800.0), 4),
                Some(200.0),
                1000.0 * (0.9 * 0.25 + 0.1 / 4.0),
            ),
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
            let guard = Guard::part_of(&zone, own.map(rate));
            assert!(
                (guard.rate.per_second() - expected).abs() < 1e-9,
                "{zone:?} {own:?}: {guard:?}"
            );
        }
    }

    #[test]
    fn burst_grows_with_the_part() {
        for (guard, depth) in [
            (0.0, 3.0),
            (20.0, 1.0 + 4.0 + 3.0),
            (2000.0, 100.0 + 40.0 + 3.0),
        ] {
            let zone = zone(guard, None, 1);
            let part = |zone| Guard::part_of(&zone, Some(Rate::ZERO));
            assert!((part(zone).depth.as_f64() - depth).abs() < 1e-6, "{guard}");
            let denied = ZoneGuard {
                limit: Limit::PerSecond(Rate::ZERO),
                ..zone
            };
            assert_eq!(part(denied).depth, TokenCount::NONE);
        }
    }

    fn pool(shared: Option<f64>, offered: f64, depth: f64, burst: f64) -> ZonePool {
        ZonePool {
            rate: shared.map_or(Headroom::None, |shared| Headroom::Shared(rate(shared))),
            offered: rate(offered),
            depth: PoolDepth::nearest(depth),
            burst: TokenCount::new(burst),
        }
    }

    #[test]
    fn half_the_pool_follows_the_traffic() {
        for (zone, own, clients, expected) in [
            (pool(Some(1_000.0), 800.0, 1.0, 0.0), Some(200.0), 4, 250.0),
            (pool(Some(1_000.0), 800.0, 1.0, 0.0), Some(0.0), 4, 125.0),
            (pool(Some(1_000.0), 800.0, 1.0, 0.0), Some(9e9), 4, 625.0), // never more than all of it
            (pool(Some(1_000.0), 800.0, 1.0, 0.0), None, 4, 125.0),      // nothing measured yet
            (pool(Some(1_000.0), 0.0, 1.0, 0.0), Some(0.0), 4, 250.0),
            (pool(Some(1_000.0), 0.0, 1.0, 0.0), Some(0.0), 0, 1_000.0),
            (pool(None, 800.0, 12.0, 1e6), Some(800.0), 1, 0.0),
        ] {
            let got = Guard::pool(&zone, own.map(rate), clients, TokenCount::NONE);
            assert!(
                (got.rate.per_second() - expected).abs() < 1e-9,
                "{zone:?} {own:?}: {got:?}"
            );
        }
    }

    #[test]
    fn learned_factor_deepens_a_bounded_pool() {
        // At 20/s a depth of 8 requests, 0.4 s of the rate.
        for (shared, factor, burst, depth) in [
            (Some(20.0), 1.0, 1e6, 8.0),
            (Some(20.0), 2.0, 0.0, 16.0),
            (Some(20.0), 12.0, 0.0, 32.0),
            (Some(20.0), 12.0, 50.0, 50.0),
            (Some(20.0), 12.0, 1e6, 96.0),
            (Some(2_000.0), 12.0, 0.0, 141.0), // as deep as without a factor at least
            (Some(0.0), 12.0, 1e6, 12.0),
            (None, 12.0, 1e6, 0.0),
        ] {
            let zone = pool(shared, 1.0, factor, burst);
            let got = Guard::pool(&zone, Some(rate(1.0)), 1, TokenCount::NONE);
            assert!(
                (got.depth.as_f64() - depth).abs() < 1e-6,
                "{zone:?}: {got:?}"
            );
        }
    }

    #[test]
    fn client_groups_deepen_pools_within_the_limit() {
        // Groups, limit, learned factor, depth of a pool with a base of 8 requests.
        for (group, limit, factor, depth) in [
            (50.0, 1_000.0, 12.0, 65.0),
            (50.0, 1_000.0, 1.0, 8.0), // nothing was refused
            (50.0, 240.0, 12.0, 60.0), // a quarter of a second of the limit
            (1e9, 1e9, 12.0, 96.0),
            (10.0, 1_000.0, 12.0, 32.0),
            (50.0, 0.0, 12.0, 32.0),
        ] {
            let group = Guard::depth_of_group(group, Limit::PerSecond(rate(limit)));
            let zone = pool(Some(20.0), 1.0, factor, 0.0);
            let got = Guard::pool(&zone, Some(rate(1.0)), 1, group).depth.as_f64();
            assert!(
                (got - depth).abs() < 1e-6,
                "{group:?} {limit} {factor}: {got}"
            );
        }
    }

    #[test]
    fn pools_of_few_clients_are_deep() {
        let base = |rate: f64| 0.05 * rate + 2.0 * (0.2 * rate).sqrt() + 1.0;
        for (shared, clients, depth) in [
            (Some(150.0), 1, 32.0),
            (Some(150.0), 2, 25.0),
            (Some(150.0), 4, 12.5),
            (Some(100.0), 5, 8.0), // 0.4 s of the rate, divided evenly
            (Some(40.0), 1, 16.0),
            (Some(40.0), 10, base(2.0)),
            (Some(1_500.0), 4, base(187.5)), // deeper anyway
            (Some(1_500.0), 8, base(93.75)),
            (Some(300.0), 8, 6.25), // 50 requests, divided evenly
            (Some(300.0), 0, 32.0),
            (Some(0.0), 1, 1.0),
            (None, 1, 0.0),
        ] {
            let zone = pool(shared, 1_000.0, 1.0, 0.0);
            let got = Guard::pool(&zone, None, clients, TokenCount::NONE);
            assert!(
                (got.depth.as_f64() - depth).abs() < 1e-6,
                "{shared:?} {clients}: {got:?}"
            );
        }
    }

    #[test]
    fn first_rate_counts_whole() {
        let time = parameters::SHARE_TIME;
        assert_eq!(client_rate(None, rate(70.0), time / 10), rate(70.0));
        let grown = client_rate(Some(Rate::ZERO), rate(100.0), time);
        assert!((grown.per_second() - 63.212).abs() < 1e-3, "{grown:?}");
        let mut stepwise = Rate::ZERO;
        for _ in 0..10 {
            stepwise = client_rate(Some(stepwise), rate(100.0), time / 10);
        }
        assert!((stepwise.per_second() - grown.per_second()).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn client_parts_make_up_the_guard(guard in 0.0..1e6_f64, own in prop::collection::vec(0.0..1e5_f64, 1..50)) {
            let offered: f64 = own.iter().sum();
            let zone = zone(guard, Some(offered), own.len() as u32);
            let part = |own| Guard::part_of(&zone, Some(rate(own))).rate;
            let sum = own.into_iter().map(part).fold(Rate::ZERO, Rate::add);
            prop_assert!((sum.per_second() - guard).abs() <= 1e-9 * guard.max(1.0));
        }

        #[test]
        fn client_parts_make_up_the_pool(
            shared in 0.0..1e6_f64, depth in 1.0..12.0_f64, burst in 0.0..1e5_f64,
            own in prop::collection::vec(0.0..1e5_f64, 1..50),
        ) {
            let offered: f64 = own.iter().sum();
            let (zone, clients) = (pool(Some(shared), offered, depth, burst), own.len() as u32);
            let part = |own: &f64| Guard::pool(&zone, Some(rate(*own)), clients, TokenCount::NONE).rate;
            let sum = own.iter().map(part).fold(Rate::ZERO, Rate::add);
            prop_assert!((sum.per_second() - shared).abs() <= 1e-9 * shared.max(1.0));
        }
    }
}
