//! The pace at which unlisted tenants of a bucket become established: by traffic over a minute, and in
//! numbers that at most double in a given time, so that names that a caller invents and keeps cannot replace
//! the tenants before them at once.

use std::time::Duration;

use plimsoll_core::law::Parameters;

/// Established tenants of a bucket at most. The other entries remain for new names.
pub(super) const ESTABLISHED_MAX: usize = 900;

/// The traffic of one unlisted tenant over the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The number of looks at which it had traffic.
    samples: u8,
    pub(super) is_established: bool,
}

/// The clock and the room of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    since_sample: Duration,
    since_period: Duration,
    /// True until the first period is over.
    pub(super) is_young: bool,
    /// The tenants that may still be established in this period.
    left: usize,
}

impl Standing {
    /// A tenant that another process called established.
    pub(super) const ESTABLISHED: Self = Self { samples: 0, is_established: true };

    /// Counts a look at which the tenant had traffic.
    fn on_traffic(&mut self) {
        self.samples = self.samples.saturating_add(1);
    }
}

impl Default for Growth {
    fn default() -> Self {
        let (since_sample, since_period) = (Duration::ZERO, Duration::ZERO);
        Self { since_sample, since_period, is_young: true, left: ESTABLISHED_MAX }
    }
}

impl Growth {
    /// Advances by `elapsed` while the bucket has unlisted tenants. `established` of them are established.
    /// Returns true if it is time for a look at their traffic.
    pub(super) fn advance(&mut self, elapsed: Duration, established: usize, parameters: &Parameters) -> bool {
        self.since_sample += elapsed;
        self.since_period += elapsed;
        if self.since_period >= parameters.tenant_growth {
            (self.since_period, self.is_young) = (Duration::ZERO, false);
            self.limit(established, parameters);
        }
        let is_due = self.since_sample >= parameters.tenant_sample;
        if is_due {
            self.since_sample = Duration::ZERO;
        }
        is_due
    }

    /// Lets the `established` tenants at most double in the rest of this period.
    pub(super) fn limit(&mut self, established: usize, parameters: &Parameters) {
        let most = established.max(parameters.tenant_growth_min);
        self.left = most.min(ESTABLISHED_MAX.saturating_sub(established));
    }

    /// Looks at a tenant that has traffic. Returns true if it is established by that.
    pub(super) fn look(&mut self, standing: &mut Standing, parameters: &Parameters) -> bool {
        standing.on_traffic();
        let is_due = !standing.is_established && standing.samples >= parameters.tenant_samples;
        if !is_due || self.left == 0 {
            return false;
        }
        self.left -= 1;
        standing.is_established = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: fn() -> Parameters = Parameters::default;

    /// Advances by one look, at which all of these tenants have traffic.
    fn look(growth: &mut Growth, tenants: &mut [Standing]) {
        let count = |tenants: &[Standing]| tenants.iter().filter(|tenant| tenant.is_established).count();
        let (parameters, established) = (LAW(), count(tenants));
        assert!(growth.advance(parameters.tenant_sample, established, &parameters));
        for tenant in tenants {
            growth.look(tenant, &parameters);
        }
    }

    fn established(tenants: &[Standing]) -> usize {
        tenants.iter().filter(|tenant| tenant.is_established).count()
    }

    #[test]
    fn tenant_is_established_by_traffic_over_a_minute() {
        let (mut growth, mut tenants) = (Growth::default(), [Standing::default(); 3]);
        for _ in 0..5 {
            look(&mut growth, &mut tenants);
        }
        assert_eq!(established(&tenants), 0);
        look(&mut growth, &mut tenants[..2]);
        assert_eq!(established(&tenants), 2, "the third had no traffic at the last look");
        look(&mut growth, &mut tenants);
        assert_eq!(established(&tenants), 3);
    }

    #[test]
    fn established_tenants_at_most_double_in_each_period_after_the_first() {
        let (mut growth, mut tenants) = (Growth::default(), vec![Standing::default(); 10_000]);
        // A bucket's first tenants are established together.
        for _ in 0..17 {
            look(&mut growth, &mut tenants[..20]);
        }
        let mut by_period = Vec::new();
        for _ in 0..7 {
            for _ in 0..18 {
                look(&mut growth, &mut tenants);
            }
            by_period.push(established(&tenants));
        }
        assert_eq!(by_period, [40, 80, 160, 320, 640, ESTABLISHED_MAX, ESTABLISHED_MAX]);
    }

    #[test]
    fn few_tenants_grow_by_a_fixed_number() {
        let (mut growth, mut tenants) = (Growth::default(), vec![Standing::default(); 100]);
        growth.limit(1, &LAW());
        tenants[0] = Standing::ESTABLISHED;
        for _ in 0..17 {
            look(&mut growth, &mut tenants);
        }
        assert_eq!(established(&tenants), 1 + LAW().tenant_growth_min);
    }
}
