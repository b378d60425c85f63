//! Burst credit: a tenant that stayed below its share may go above it for a while.

use super::parameters;

/// The burst credit of one tenant, in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Burst {
    credit: f64,
}

impl Burst {
    /// Accounts for `dt` seconds with `passed` requests of the tenant at a share of `share`
    /// requests/s, and returns the factor on its weight: 1 to `multiplier`. A full credit pays for
    /// `BURST_TIME` at the full multiplier; the factor fades over the last `BURST_FADE` of the
    /// credit.
    pub fn on_tick(&mut self, dt: f64, share: f64, passed: f64, multiplier: f64) -> f64 {
        let most = (multiplier - 1.0) * share * parameters::BURST_TIME.as_secs_f64();
        if !(most.is_finite() && most > 0.0) {
            self.credit = 0.0;
            return 1.0;
        }
        let earned = share * dt - passed;
        if earned.is_finite() {
            self.credit = (self.credit + earned).clamp(0.0, most);
        }
        1.0 + (multiplier - 1.0) * (self.credit / (parameters::BURST_FADE * most)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_saved_below_the_share() {
        let mut burst = Burst::default();
        // The credit is empty at the start; an idle tenant with a share of 100/s saves 200 requests in two
        // seconds.
        assert_eq!(burst.on_tick(0.0, 100.0, 0.0, 2.0), 1.0);
        assert_eq!(burst.on_tick(2.0, 100.0, 0.0, 2.0), 2.0);
        assert_eq!(burst.on_tick(60.0, 100.0, 0.0, 2.0), 2.0);
        // At twice the share it lasts two seconds, and fades out over the last fifth of the credit.
        for (passed, credit, boost) in [
            (200.0, 100.0, 2.0),
            (150.0, 50.0, 2.0),
            (130.0, 20.0, 1.5),
            (200.0, 0.0, 1.0),
        ] {
            assert_eq!(burst.on_tick(1.0, 100.0, passed, 2.0), boost);
            assert_eq!(burst.credit, credit);
        }
    }

    #[test]
    fn burst_factor_needs_multiplier_and_share() {
        for (share, multiplier) in [(100.0, 1.0), (0.0, 3.0), (f64::NAN, 3.0), (100.0, f64::NAN)] {
            assert_eq!(Burst::default().on_tick(10.0, share, 0.0, multiplier), 1.0);
        }
    }
}
