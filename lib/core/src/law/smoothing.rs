//! Smoothing of measured rates: fast up, slower down, and slower up where the sample is small.

use std::time::Duration;

use super::parameters;

/// Returns the smoothed rate in requests/s after `count` requests in `span`: an exponentially
/// weighted moving average with a gain that grows with the span, `1 - (1 - gain)^(span / step)`.
/// Rises take effect immediately and falls more slowly, because refusing too little costs more than
/// refusing too much. A rise measured on few requests may be chance and is taken no faster than a
/// fall. An empty span leaves the rate as it is.
pub fn smoothed(held: f64, count: f64, span: Duration) -> f64 {
    let measured = count / span.as_secs_f64();
    if !measured.is_finite() {
        return held;
    }
    let gain = match measured > held {
        true if count >= parameters::GAIN_COUNTS => parameters::GAIN_RISING,
        true => parameters::GAIN_RISING_FEW,
        false => parameters::GAIN_FALLING,
    };
    let steps = span.as_secs_f64() / parameters::GAIN_STEP.as_secs_f64();
    held + (1.0 - (1.0 - gain).powf(steps)) * (measured - held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: Duration = Duration::from_millis(500);

    #[test]
    fn rise_is_immediate_and_fall_gradual() {
        for (held, count, expected) in [
            (0.0, 500.0, 1_000.0),
            (0.0, 99.0, 0.6 * 198.0), // few requests may be chance
            (1_000.0, 0.0, 400.0),
            (1_000.0, 250.0, 700.0),
        ] {
            let got = smoothed(held, count, STEP);
            assert!((got - expected).abs() < 1e-9, "{held} after {count}: {got}");
        }
        assert_eq!(smoothed(7.0, 0.0, Duration::ZERO), 7.0);
        assert_eq!(smoothed(7.0, 3.0, Duration::ZERO), 7.0);
    }

    proptest! {
        #[test]
        fn two_half_steps_equal_one_whole(
            held in 1e3..1e6, measured in 0.0..1e3, ms in 1..10_000u64,
        ) {
            let half = Duration::from_millis(ms);
            let count = measured * half.as_secs_f64();
            let twice = smoothed(smoothed(held, count, half), count, half);
            prop_assert!((twice - smoothed(held, 2.0 * count, half * 2)).abs() < 1e-6);
        }

        #[test]
        fn smoothed_rate_stays_between_its_inputs(held in 0.0..1e6, count in 0.0..1e6, ms in 1..10_000u64) {
            let span = Duration::from_millis(ms);
            let measured = count / span.as_secs_f64();
            let next = smoothed(held, count, span);
            let slack = 1e-9 * held.max(measured).max(1.0);
            prop_assert!(next >= held.min(measured) - slack && next <= held.max(measured) + slack);
        }
    }
}
