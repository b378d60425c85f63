//! Every number the law is tuned by, with its unit, in one place.

use std::time::Duration;

/// The parameters of the law. The defaults were found by simulation over some 60 variants and 30 traffic patterns;
/// `docs/law.md` tells where each one acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// How often a zone rolls its counts up, and how often the controller applies the law.
    pub tick: Duration,
    /// How often clients report.
    pub report_interval: Duration,
    /// The period of an aggregator's fast loop, and the grain of its windows.
    pub fast_period: Duration,
    /// What one step of `gain_step` goes of the way to a measured rate that is higher than the held one: 0..=1.
    pub gain_rising: f64,
    /// The same for a rise that rests on fewer than `gain_counts` requests of the key in the zone: 0..=1.
    pub gain_rising_few: f64,
    /// The same for a measured rate that is lower: 0..=1.
    pub gain_falling: f64,
    /// The step the gains are meant for.
    pub gain_step: Duration,
    /// Requests from which on a rise is believed at once.
    pub gain_counts: f64,
    /// The shortest time over which the balance is repaid.
    pub tau_min: Duration,
    /// The time over which the balance is repaid, in requests: a limit of L has at least `tau_requests / L` seconds.
    pub tau_requests: f64,
    /// The time over which the balance is repaid where a tick takes a second or more.
    pub tau_slow: Duration,
    /// The least credit that may be saved, in standard deviations of a second's Poisson counts at the limit.
    pub credit_deviations: f64,
    /// How much debt is remembered, in time's worth of the limit.
    pub debt: Duration,
    /// How much debt is remembered at least, in requests.
    pub debt_requests: f64,
    /// What the target may fall to, as a share of the limit.
    pub target_min: f64,
    /// What the target may rise to, as a multiple of the limit.
    pub target_max: f64,
    /// The share of a limit, and of a guard, that is divided evenly, whoever has the traffic: 0..=1.
    pub even_share: f64,
    /// Room above a share that is not scarce, in standard deviations of the counts in `window`.
    pub margin_deviations: f64,
    /// What the fast loop counts over.
    pub window: Duration,
    /// What it counts over on hold, where few come.
    pub window_few: Duration,
    /// A rise within one `fast_period` by more than this many standard deviations is believed at once.
    pub surge_deviations: f64,
    /// The fewest requests in the window that the fast loop works with.
    pub counts_min: f64,
    /// An aggregator is on hold when the controller has confirmed none of its reports of this long ago or less.
    pub controller_silent: Duration,
    /// The same for each aggregator that stands between it and the controller, on top.
    pub controller_silent_more: Duration,
    /// A child is silent when nothing was heard of it for this long, or `child_silent_ticks`.
    pub child_silent: Duration,
    /// The same in ticks; the longer of the two holds.
    pub child_silent_ticks: u32,
    /// The time constant of a client's share in its zone.
    pub share_time: Duration,
    /// What a guard lets pass above its part when it starts, as a factor: the least.
    pub slack_min: f64,
    /// The most.
    pub slack_max: f64,
    /// How a guard's burst grows with its rate g: `depth_time * g + 2 * sqrt(depth_noise * g) + depth_requests`.
    pub depth_time: Duration,
    /// See `depth_time`.
    pub depth_noise: Duration,
    /// See `depth_time`; in requests.
    pub depth_requests: f64,
    /// How often a client refills its guards.
    pub refill: Duration,
    /// How long a tenant's burst may last at its full multiplier, in time's worth of what is above its share.
    pub burst_time: Duration,
    /// The share of a full burst credit below which the boost begins to fade.
    pub burst_fade: f64,
    /// How long a controller that starts may take to be shown the traffic before it sends rates.
    pub start_wait: Duration,
    /// How long after a controller's start the zones that have not come back are taken to live on their holds.
    pub holds_kept: Duration,
    /// When nothing is left of that.
    pub holds_gone: Duration,
    /// After how long without a word from a zone a bucket leaves canary for shadow.
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
            refill: Duration::from_millis(10),
            burst_time: Duration::from_secs(2),
            burst_fade: 0.2,
            start_wait: Duration::from_secs(5),
            holds_kept: Duration::from_secs(30),
            holds_gone: Duration::from_secs(60),
            feed_stale: crate::rollout::gates::STALE_AFTER,
        }
    }
}

impl Parameters {
    /// How long nothing may be heard of a child before it is taken as silent.
    #[must_use]
    pub fn silent_after(&self) -> Duration {
        self.child_silent.max(self.tick * self.child_silent_ticks)
    }

    /// The room above a share of `rate` requests/s that is not scarce: what chance alone may bring in one window.
    #[must_use]
    pub fn margin(&self, rate: f64) -> f64 {
        self.margin_deviations * (rate / self.window.as_secs_f64()).sqrt()
    }
}
