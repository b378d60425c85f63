//! The tuning parameters of the law with their units, in one place.

use std::time::Duration;

/// The parameters of the law. The defaults were found by simulation over some 60 variants and 30 traffic
/// patterns; `docs/control-law.md` shows where each one acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The interval of a zone's roll-ups and of the controller's law.
    pub tick: Duration,
    /// The interval of a client's reports.
    pub report_interval: Duration,
    /// The period of an aggregator's fast loop, and the bin width of its windows.
    pub fast_period: Duration,
    /// The EWMA gain per `gain_step` for a measured rate above the held one: 0..=1.
    pub gain_rising: f64,
    /// The gain for a rise measured on fewer than `gain_counts` requests of the key in the zone: 0..=1.
    pub gain_rising_few: f64,
    /// The gain for a measured rate below the held one: 0..=1.
    pub gain_falling: f64,
    /// The step that the gains apply to.
    pub gain_step: Duration,
    /// The number of requests from which a rise takes `gain_rising`.
    pub gain_counts: f64,
    /// The shortest time over which the balance is repaid.
    pub tau_min: Duration,
    /// The time over which the balance is repaid, in requests: a limit of L has at least `tau_requests / L`
    /// seconds.
    pub tau_requests: f64,
    /// The time over which the balance is repaid where a tick takes a second or more.
    pub tau_slow: Duration,
    /// The least credit that may be saved, in standard deviations of a second's Poisson counts at the limit.
    pub credit_deviations: f64,
    /// The debt cap, in seconds of the limit.
    pub debt: Duration,
    /// The smallest debt cap, in requests.
    pub debt_requests: f64,
    /// The lowest target, as a share of the limit.
    pub target_min: f64,
    /// The highest target, as a multiple of the limit.
    pub target_max: f64,
    /// The share of a limit and of a guard that is divided evenly, whatever the traffic: 0..=1.
    pub even_share: f64,
    /// Room above a share that is not scarce, in standard deviations of the counts in `window`.
    pub margin_deviations: f64,
    /// The window of the fast loop.
    pub window: Duration,
    /// The window of the fast loop on hold, for keys with few requests.
    pub window_few: Duration,
    /// The rise within one `fast_period`, in standard deviations, above which the latest bin alone counts.
    pub surge_deviations: f64,
    /// The fewest requests in the window for which the fast loop computes a ratio.
    pub counts_min: f64,
    /// The age of the last confirmed report from which an aggregator is on hold.
    pub controller_silent: Duration,
    /// The addition to `controller_silent` for each aggregator between this one and the controller.
    pub controller_silent_more: Duration,
    /// The time without a report after which a child is silent.
    pub child_silent: Duration,
    /// The time without a report after which a child is silent, in ticks; the longer of the two applies.
    pub child_silent_ticks: u32,
    /// The EWMA time constant of a client's share in its zone.
    pub share_time: Duration,
    /// The smallest slack of a guard, a factor on its rate, and the slack of a start.
    pub slack_min: f64,
    /// The largest slack of a guard.
    pub slack_max: f64,
    /// The linear term of a guard's depth at rate g: `depth_time * g + 2 * sqrt(depth_noise * g) +
    /// depth_requests`.
    pub depth_time: Duration,
    /// See `depth_time`.
    pub depth_noise: Duration,
    /// See `depth_time`; in requests.
    pub depth_requests: f64,
    /// The share of a bucket's headroom that is divided evenly between zones: 0..=1.
    pub headroom_even: f64,
    /// The largest first excess of a zone over its room, in requests.
    pub excess_requests: f64,
    /// The largest first excess of a zone over its room, in seconds of the room; the smaller of the two applies.
    pub excess_time: Duration,
    /// The share of a headroom pool that is divided evenly between the clients of a zone: 0..=1.
    pub pool_even: f64,
    /// The requests in a headroom pool's depth, in place of `depth_requests`.
    pub pool_requests: f64,
    /// The depth in requests up to which the learned factor raises any pool.
    pub pool_depth_requests: f64,
    /// The depth of a zone's pools together up to which the learned factor raises them, in seconds of the
    /// zone's even part of the limit.
    pub pool_burst: Duration,
    /// The part of the guard of a class of names that is kept for established names while they send all of its traffic.
    pub guard_reserve: f64,
    /// The memory of a client for the part of a class's traffic that established names send.
    pub guard_reserve_memory: Duration,
    /// The depth of a client's pool in its largest group of requests at once, to which the learned factor may raise it.
    pub pool_group: f64,
    /// The depth of a client's pool by its largest group at most, in seconds of the limit.
    pub pool_group_max: Duration,
    /// The time in which a client forgets its largest group.
    pub pool_group_fade: Duration,
    /// The depth of a zone's pools together that is divided evenly between few clients, in requests. Gives no pool
    /// more than `pool_depth_requests`.
    pub pool_few_requests: f64,
    /// The depth that is divided evenly between few clients, in seconds of the rate of all pools; the smaller of
    /// the two applies.
    pub pool_few_time: Duration,
    /// The depth in requests up to which a client that has just joined is granted what its pool lacks.
    pub grant_depth_requests: f64,
    /// The most requests that a zone grants at once to clients that have just joined.
    pub grant_requests: f64,
    /// The most requests that a zone grants at once, in seconds of its room; the smaller of the two applies.
    pub grant_time: Duration,
    /// The time in which a zone that uses less than its room may grant as much again.
    pub grant_refill: Duration,
    /// The time after which tokens that a client was granted lapse.
    pub grant_lapse: Duration,
    /// The interval at which a client refills its guards.
    pub refill: Duration,
    /// The longest delay of a refill that a client makes up for.
    pub pause_max: Duration,
    /// The longest burst of a tenant at its full multiplier.
    pub burst_time: Duration,
    /// The share of a full burst credit below which the boost begins to fade.
    pub burst_fade: f64,
    /// The memory of the rate of an unlisted name.
    pub name_memory: Duration,
    /// The memory that shows a sudden change of that rate.
    pub name_memory_fast: Duration,
    /// The requests in the memory from which on a name's own counts tell its rate.
    pub name_counts: f64,
    /// The requests in the memory below which they tell it no more.
    pub name_counts_kept: f64,
    /// The interval at which the traffic of unlisted names is looked at, to tell established ones from new
    /// names.
    pub tenant_sample: Duration,
    /// The number of looks with traffic after which an unlisted name is established: it came back, as a name
    /// that is invented for one request does not.
    pub tenant_samples: u8,
    /// The time from a class's first request on in which every name that arrives is established.
    pub tenant_young: Duration,
    /// The time in which the established names of a class at most double, so that a flood of names that
    /// stay costs the tenants before it half of their share only once in this time.
    pub tenant_growth: Duration,
    /// The number of names that may be established in one `tenant_growth`, however few there are.
    pub tenant_growth_min: usize,
    /// The longest wait of a starting controller for roll-ups with counts before it sends rates.
    pub start_wait: Duration,
    /// The time after a controller's start for which the holds of absent zones are reserved in full.
    pub holds_kept: Duration,
    /// The time after a controller's start at which the reservation has fallen to zero.
    pub holds_gone: Duration,
    /// The age of a zone's last report at which canary buckets return to shadow.
    pub feed_stale: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(500),
            report_interval: Duration::from_millis(100),
            fast_period: Duration::from_millis(100),
            gain_rising: 1.0,
            gain_rising_few: 0.6,
            gain_falling: 0.6,
            gain_step: Duration::from_millis(500),
            gain_counts: 100.0,
            tau_min: Duration::from_secs(2),
            tau_requests: 8.0,
            tau_slow: Duration::from_secs(4),
            credit_deviations: 2.0,
            debt: Duration::from_secs(2),
            debt_requests: 10.0,
            target_min: 0.25,
            target_max: 2.0,
            even_share: 0.1,
            margin_deviations: 2.5,
            window: Duration::from_millis(300),
            window_few: Duration::from_secs(3),
            surge_deviations: 3.0,
            counts_min: 20.0,
            controller_silent: Duration::from_secs(2),
            controller_silent_more: Duration::from_secs(1),
            child_silent: Duration::from_millis(1_500),
            child_silent_ticks: 3,
            share_time: Duration::from_secs(1),
            slack_min: 1.5,
            slack_max: 6.0,
            depth_time: Duration::from_millis(50),
            depth_noise: Duration::from_millis(200),
            depth_requests: 3.0,
            headroom_even: 0.6,
            excess_requests: 60.0,
            excess_time: Duration::from_secs(2),
            pool_even: 0.5,
            pool_requests: 1.0,
            pool_depth_requests: 32.0,
            pool_burst: Duration::from_millis(500),
            guard_reserve: 0.5,
            guard_reserve_memory: Duration::from_secs(10),
            pool_group: 1.3,
            pool_group_max: Duration::from_millis(250),
            pool_group_fade: Duration::from_secs(600),
            pool_few_requests: 50.0,
            pool_few_time: Duration::from_millis(400),
            grant_depth_requests: 25.0,
            grant_requests: 60.0,
            grant_time: Duration::from_secs(1),
            grant_refill: Duration::from_secs(2),
            grant_lapse: Duration::from_secs(10),
            refill: Duration::from_millis(10),
            pause_max: Duration::from_secs(1),
            burst_time: Duration::from_secs(2),
            burst_fade: 0.2,
            name_memory: Duration::from_secs(30),
            name_memory_fast: Duration::from_secs(1),
            name_counts: 8.0,
            name_counts_kept: 4.0,
            tenant_sample: Duration::from_secs(10),
            tenant_samples: 2,
            tenant_young: Duration::from_secs(60),
            tenant_growth: Duration::from_secs(180),
            tenant_growth_min: 5,
            start_wait: Duration::from_secs(5),
            holds_kept: Duration::from_secs(30),
            holds_gone: Duration::from_secs(60),
            feed_stale: crate::rollout::gates::STALE_AFTER,
        }
    }
}

impl Parameters {
    /// Returns the time without a report after which a child is silent.
    pub fn silent_after(&self) -> Duration {
        self.child_silent.max(self.tick * self.child_silent_ticks)
    }

    /// Returns the room above a share of `rate` requests/s that is not scarce: the chance fluctuation of one
    /// window.
    pub fn margin(&self, rate: f64) -> f64 {
        self.margin_deviations * (rate / self.window.as_secs_f64()).sqrt()
    }
}
