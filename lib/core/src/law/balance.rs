//! The balance of a bucket: tokens saved or overdrawn, so that overshoot is repaid and undershoot is made up.

use std::time::Duration;

use super::{Parameters, parameters};

/// The token account of one bucket, in requests: credit above zero, debt below.
///
/// Tokens come in at the limit L and go out with the requests V that were let through, so dB/dt = L - V. The
/// target, `L + B / tau`, makes B return to zero as `dB/dt = -B(t - theta) / tau`, where theta is the time
/// until a decision shows in the counts (about 0.9 s at half-second ticks). That is stable for theta/tau <
/// pi/2 and free of overshoot for theta/tau <= 1/e; `TAU_MIN` is chosen for the latter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    tokens: f64,
}

impl Balance {
    /// The credit in requests, or the debt when negative.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Adds tokens, or takes them when negative. NaN and infinity change nothing.
    pub fn add(&mut self, tokens: f64) {
        if tokens.is_finite() {
            self.tokens += tokens;
        }
    }

    /// Cuts credit and debt to their caps and returns the rate to admit now, in requests/s: the limit plus
    /// the balance spread over tau, within bounds. `burst` is the largest credit, in seconds of the limit; a small
    /// limit has at least `CREDIT_DEVIATIONS`.
    pub fn target(&mut self, limit: f64, burst: Duration, parameters: &Parameters) -> f64 {
        let credit =
            (burst.as_secs_f64() * limit).max(parameters::CREDIT_DEVIATIONS * limit.sqrt());
        let debt = (parameters::DEBT.as_secs_f64() * limit).max(parameters::DEBT_REQUESTS);
        self.tokens = self.tokens.clamp(-debt, credit);
        let tau = if parameters.tick >= Duration::from_secs(1) {
            parameters::TAU_SLOW.as_secs_f64()
        } else {
            parameters::TAU_MIN
                .as_secs_f64()
                .max(parameters::TAU_REQUESTS / limit)
        };
        (limit + self.tokens / tau).clamp(
            parameters::TARGET_MIN * limit,
            parameters::TARGET_MAX * limit,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Duration = Duration::from_millis(250);

    fn target(tokens: f64, limit: f64) -> (f64, f64) {
        let mut balance = Balance::default();
        balance.add(tokens);
        let target = balance.target(limit, BURST, &Parameters::default());
        (target, balance.tokens())
    }

    #[test]
    fn debt_and_credit_move_within_bounds() {
        for (tokens, limit, expected, left) in [
            (0.0, 1_000.0, 1_000.0, 0.0),
            (-500.0, 1_000.0, 750.0, -500.0),
            (100.0, 1_000.0, 1_050.0, 100.0),
            (9_999.0, 1_000.0, 1_125.0, 250.0), // a quarter of a second may be saved
            (-9_999.0, 1_000.0, 250.0, -2_000.0), // two seconds are remembered
            (9.0, 4.0, 6.0, 4.0),               // at low limits the noise of a second
            (-99.0, 1.0, 0.25, -10.0),          // and ten requests; tau is 8 s here
        ] {
            let got = target(tokens, limit);
            assert!(
                (got.0 - expected).abs() < 1e-9 && got.1 == left,
                "{tokens} at {limit}: {got:?}"
            );
        }
    }

    #[test]
    fn nan_and_infinity_change_nothing() {
        let mut balance = Balance::default();
        balance.add(f64::NAN);
        balance.add(f64::NEG_INFINITY);
        assert_eq!(balance.tokens(), 0.0);
    }

    /// With a delay of one second in the loop the balance returns to zero almost without overshoot.
    #[test]
    fn overshoot_is_repaid_without_swinging() {
        let mut balance = Balance::default();
        balance.add(-1_500.0);
        // A target shows in the counts two ticks later.
        let mut pending = [1_000.0, 1_000.0];
        for _ in 0..60 {
            let target = balance.target(1_000.0, Duration::from_secs(10), &Parameters::default());
            let passed = pending[0];
            pending = [pending[1], target];
            balance.add((1_000.0 - passed) * 0.5);
            assert!(balance.tokens() < 0.15 * 1_500.0, "{}", balance.tokens());
        }
    }
}
