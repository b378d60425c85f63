//! Smoothing of measured rates: one window in which reports bunched must not bend what is held.

use std::time::Duration;

/// The share of the way from what is held to what was measured that one [`STEP`] goes.
const GAIN: f64 = 0.6;
/// The interval the gain is meant for.
const STEP: Duration = Duration::from_millis(500);

/// The rate to hold, in requests/s, after `measured` was found over `span`: an exponentially weighted moving average
/// whose weight grows with the span, `1 - (1 - gain)^(span / step)`. The first measurement is held as it is.
#[must_use]
pub fn smoothed(held: Option<f64>, measured: f64, span: Duration) -> f64 {
    let Some(held) = held else { return measured };
    let gain = 1.0 - (1.0 - GAIN).powf(span.as_secs_f64() / STEP.as_secs_f64());
    held + gain * (measured - held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_measurement_is_held_and_later_ones_are_approached() {
        assert_eq!(smoothed(None, 840.0, STEP), 840.0);
        assert!((smoothed(Some(0.0), 100.0, STEP) - 60.0).abs() < 1e-9);
        assert!((smoothed(Some(100.0), 0.0, STEP) - 40.0).abs() < 1e-9);
        assert_eq!(smoothed(Some(100.0), 0.0, Duration::ZERO), 100.0);
    }

    proptest! {
        #[test]
        fn two_steps_of_half_the_span_lead_where_one_does(held in 0.0..1e6, measured in 0.0..1e6, ms in 1..10_000u64) {
            let half = Duration::from_millis(ms);
            let twice = smoothed(Some(smoothed(Some(held), measured, half)), measured, half);
            prop_assert!((twice - smoothed(Some(held), measured, half * 2)).abs() < 1e-6);
        }

        #[test]
        fn what_is_held_stays_between(held in 0.0..1e6, measured in 0.0..1e6, ms in 0..10_000u64) {
            let next = smoothed(Some(held), measured, Duration::from_millis(ms));
            prop_assert!(next >= held.min(measured) - 1e-6 && next <= held.max(measured) + 1e-6);
        }
    }
}
