//! The tuning parameters of the law with their units, in one place, by the part that reads them.
//!
//! They were found by simulation over some 60 variants and 30 traffic patterns; `docs/control-law.md` shows where
//! each one acts.

use std::time::Duration;

// === Rates of the controller ===

/// The EWMA gain per [`GAIN_STEP`] for a measured rate above the held one: 0..=1.
pub const GAIN_RISING: f64 = 1.0;
/// The gain for a rise measured on fewer than [`GAIN_COUNTS`] requests of the key in the zone: 0..=1.
pub const GAIN_RISING_FEW: f64 = 0.6;
/// The gain for a measured rate below the held one: 0..=1.
pub const GAIN_FALLING: f64 = 0.6;
/// The step that the gains apply to.
pub const GAIN_STEP: Duration = Duration::from_millis(500);
/// Minimum number of requests for a rise to take [`GAIN_RISING`].
pub const GAIN_COUNTS: f64 = 100.0;

// === The balance ===

/// The shortest time over which the balance is repaid.
pub const TAU_MIN: Duration = Duration::from_secs(2);
/// The time over which the balance is repaid, in requests: a limit of L has at least `TAU_REQUESTS / L`
/// seconds.
pub const TAU_REQUESTS: f64 = 8.0;
/// The time over which the balance is repaid where a tick takes a second or more.
pub const TAU_SLOW: Duration = Duration::from_secs(4);
/// Minimum bound of the saved credit, in standard deviations of a second's Poisson counts at the
/// limit.
pub const CREDIT_DEVIATIONS: f64 = 2.0;
/// The debt cap, in seconds of the limit.
pub const DEBT: Duration = Duration::from_secs(2);
/// The smallest debt cap, in requests.
pub const DEBT_REQUESTS: f64 = 10.0;
/// The lowest target, as a share of the limit.
pub const TARGET_MIN: f64 = 0.25;
/// The highest target, as a multiple of the limit.
pub const TARGET_MAX: f64 = 2.0;
/// Maximum burst of a tenant at its full multiplier.
pub const BURST_TIME: Duration = Duration::from_secs(2);
/// The share of a full burst credit below which the boost begins to fade.
pub const BURST_FADE: f64 = 0.2;

// === Division between zones and keys ===

/// The share of a limit and of a guard that is divided evenly, regardless of the traffic: 0..=1.
pub const EVEN_SHARE: f64 = 0.1;
/// Room above a share that is not scarce, in standard deviations of the counts in [`WINDOW`].
pub const MARGIN_DEVIATIONS: f64 = 2.5;
/// The share of a bucket's headroom that is divided evenly between zones: 0..=1.
pub const HEADROOM_EVEN: f64 = 0.6;

// === The fast loop ===

/// The period of an aggregator's fast loop, and the bin width of its windows.
pub const FAST_PERIOD: Duration = Duration::from_millis(100);
/// The window of the fast loop.
pub const WINDOW: Duration = Duration::from_millis(300);
/// The window of the fast loop on hold, for keys with few requests.
pub const WINDOW_FEW: Duration = Duration::from_secs(3);
/// Minimum rise within one [`FAST_PERIOD`], in standard deviations, for only the latest bin to
/// count.
pub const SURGE_DEVIATIONS: f64 = 3.0;
/// Minimum number of requests in the window, offered or allowed, for the fast loop to compute a ratio.
pub const COUNTS_MIN: f64 = 20.0;
/// The EWMA time constant of a client's share in its zone.
pub const SHARE_TIME: Duration = Duration::from_secs(1);
/// The largest first excess of a zone over its room, in requests.
pub const EXCESS_REQUESTS: f64 = 60.0;
/// The largest first excess of a zone over its room, in seconds of the room; the smaller of the two applies.
pub const EXCESS_TIME: Duration = Duration::from_secs(2);

// === Guards ===

/// Minimum slack of a guard, a factor on its rate, and the slack of a start.
pub const SLACK_MIN: f64 = 1.5;
/// Maximum slack of a guard.
pub const SLACK_MAX: f64 = 6.0;
/// The linear term of a guard's depth at rate g: `DEPTH_TIME * g + 2 * sqrt(DEPTH_NOISE * g) +
/// DEPTH_REQUESTS`.
pub const DEPTH_TIME: Duration = Duration::from_millis(50);
/// See [`DEPTH_TIME`].
pub const DEPTH_NOISE: Duration = Duration::from_millis(200);
/// See [`DEPTH_TIME`]; in requests.
pub const DEPTH_REQUESTS: f64 = 3.0;
/// The part of the guard of a class of names that is kept for established names while they send all of its traffic.
pub const GUARD_RESERVE: f64 = 0.5;
/// The memory of a client for the part of a class's traffic that established names send.
pub const GUARD_RESERVE_MEMORY: Duration = Duration::from_secs(10);
/// The interval between refills of a client's guards.
pub const REFILL: Duration = Duration::from_millis(10);
/// Maximum delay of a refill that a client makes up for.
pub const PAUSE_MAX: Duration = Duration::from_secs(1);

// === Headroom pools ===

/// The share of a headroom pool that is divided evenly between the clients of a zone: 0..=1.
pub const POOL_EVEN: f64 = 0.5;
/// The requests in a headroom pool's depth, in place of [`DEPTH_REQUESTS`].
pub const POOL_REQUESTS: f64 = 1.0;
/// Maximum depth in requests that the learned factor raises any pool to.
pub const POOL_DEPTH_REQUESTS: f64 = 32.0;
/// Maximum total depth of a zone's pools that the learned factor raises them to, in seconds of the
/// zone's even part of the limit.
pub const POOL_BURST: Duration = Duration::from_millis(500);
/// Maximum depth of a client's pool that the learned factor may raise it to, as a multiple of its largest group of
/// simultaneous requests.
pub const POOL_GROUP: f64 = 1.3;
/// The depth of a client's pool by its largest group at most, in seconds of the limit.
pub const POOL_GROUP_MAX: Duration = Duration::from_millis(250);
/// Time that a client takes to forget its largest group.
pub const POOL_GROUP_FADE: Duration = Duration::from_secs(600);
/// The depth of a zone's pools together that is divided evenly between few clients, in requests. Gives no pool
/// more than [`POOL_DEPTH_REQUESTS`].
pub const POOL_FEW_REQUESTS: f64 = 50.0;
/// The depth that is divided evenly between few clients, in seconds of the rate of all pools; the smaller of
/// the two applies.
pub const POOL_FEW_TIME: Duration = Duration::from_millis(400);
/// Maximum depth in requests that a client that has just joined is granted if its pool lacks it.
pub const GRANT_DEPTH_REQUESTS: f64 = 25.0;
/// Maximum number of requests that a zone grants in one moment to clients that have just joined.
pub const GRANT_REQUESTS: f64 = 60.0;
/// Maximum number of requests that a zone grants in one moment, in seconds of its room; the smaller
/// bound applies.
pub const GRANT_TIME: Duration = Duration::from_secs(1);
/// Time until a zone that uses less than its room may grant as much again.
pub const GRANT_REFILL: Duration = Duration::from_secs(2);
/// Time until tokens that a client was granted lapse.
pub const GRANT_LAPSE: Duration = Duration::from_secs(10);

// === Unlisted names ===

/// The memory of the rate of an unlisted name.
pub const NAME_MEMORY: Duration = Duration::from_secs(30);
/// The memory that shows a sudden change of that rate.
pub const NAME_MEMORY_FAST: Duration = Duration::from_secs(1);
/// Standard deviations by which a name's rate exceeds its tenant limit before it is cut.
pub const NAME_LIMIT_DEVIATIONS: f64 = 3.0;
/// Minimum number of requests in the memory for a name's own counts to show its rate.
pub const NAME_COUNTS: f64 = 8.0;
/// The number of requests in the memory below which a name's own counts stop showing its rate.
pub const NAME_COUNTS_KEPT: f64 = 4.0;
/// Number of looks with traffic until an unlisted name is established: it returned, as a name that
/// is invented for one request does not.
pub const TENANT_SAMPLES: u8 = 2;
/// Time from a class's first request on during which every new name is established.
pub const TENANT_YOUNG: Duration = Duration::from_secs(60);
/// Minimum time for the established names of a class to double, so that a flood of names that stay
/// costs the tenants before it half of their share only once in this time.
pub const TENANT_GROWTH: Duration = Duration::from_secs(180);
/// The number of names that may be established in one [`TENANT_GROWTH`], however few there are.
pub const TENANT_GROWTH_MIN: usize = 5;

// === Liveness ===

/// Minimum age of the last confirmed report of an aggregator on hold.
pub const CONTROLLER_SILENT: Duration = Duration::from_secs(2);
/// The addition to [`CONTROLLER_SILENT`] for each aggregator between this one and the controller.
pub const CONTROLLER_SILENT_MORE: Duration = Duration::from_secs(1);
/// Time without a report until a child is silent.
pub const CHILD_SILENT: Duration = Duration::from_millis(1_500);
/// Time without a report until a child is silent, in ticks; the longer time applies.
pub const CHILD_SILENT_TICKS: u32 = 3;
/// Maximum wait of a starting controller for roll-ups with counts before it sends rates.
pub const START_WAIT: Duration = Duration::from_secs(5);
/// Time after a controller's start while the holds of absent zones are reserved in full.
pub const HOLDS_KEPT: Duration = Duration::from_secs(30);
/// Time after a controller's start until the reservation has fallen to zero.
pub const HOLDS_GONE: Duration = Duration::from_secs(60);

/// The parameters that a process or a scenario sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The interval of a zone's roll-ups and of the controller's law.
    pub tick: Duration,
    /// The interval of a client's reports.
    pub report_interval: Duration,
    /// Age of a zone's last report when canary buckets return to shadow.
    pub feed_stale: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(500),
            report_interval: Duration::from_millis(100),
            feed_stale: crate::rollout::gates::STALE_AFTER,
        }
    }
}

impl Parameters {
    /// Returns the time without a report until a child is silent.
    pub fn silent_after(&self) -> Duration {
        CHILD_SILENT.max(self.tick * CHILD_SILENT_TICKS)
    }
}

/// Returns the room above a share of `rate` requests/s that is not scarce: the chance fluctuation of one [`WINDOW`].
pub fn margin(rate: f64) -> f64 {
    MARGIN_DEVIATIONS * (rate / WINDOW.as_secs_f64()).sqrt()
}
