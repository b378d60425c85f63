//! The developer's first try: one service, everything fresh, and another tenant with each request.
//! The bucket is full anyway.

use std::time::Duration;

use plimsoll_testing::one_limiter::{LIMIT, Limiter, OneLimiter, means_10s};
use plimsoll_testing::turns::turn;

/// Requests/s.
const OFFERED: f64 = 185.0;
/// The limit holds from this second on if the tiers start with the traffic.
const SETTLED: usize = 8;

fn random_names_get_the_limit(kind: Limiter) {
    let _turn = turn(OFFERED as u32);
    let fleet = OneLimiter::start(kind);
    let (seconds, failed) = fleet.offer(OFFERED, Duration::from_secs(30));
    let (least, most) = means_10s(&seconds, SETTLED);
    let limit = f64::from(LIMIT);
    assert!(
        least >= 0.9 * limit && most <= 1.1 * limit,
        "{kind:?}: {least} to {most} in 10 s: {seconds:?}"
    );
    assert!(failed == 0.0, "every request is answered");
}

#[test]
fn service_limits_random_names() {
    random_names_get_the_limit(Limiter::Middleware);
}

#[test]
fn sidecar_limits_random_names() {
    random_names_get_the_limit(Limiter::Sidecar);
}
