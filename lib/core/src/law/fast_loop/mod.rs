//! The fast loop: a drop ratio from a key's allocation in a zone and the requests just offered there.

mod window;

pub use window::{Spread, Window};

use crate::law::parameters;
use crate::quantity::{DropRatio, MonoTime, Rate};

/// Returns the drop ratio of a key with an allocation of `allowed` requests/s from the counts of its window. Where
/// few are offered and few are allowed, chance would decide the ratio: a zone on hold then uses a longer window.
/// Otherwise nothing is refused if the counts are clearly fewer than allowed, and else the `directed` ratio applies, or
/// none. `window` is `None` while the counts are not known: nothing is then refused where much is allowed.
pub fn fast_ratio(
    window: Option<&mut Window>,
    now: MonoTime,
    allowed: f64,
    on_hold: bool,
    directed: Option<DropRatio>,
) -> DropRatio {
    let otherwise = directed.unwrap_or(DropRatio::NONE);
    let Some(allowance) = Rate::computed(allowed) else {
        return otherwise;
    };
    let excess = |offered: f64| {
        Rate::computed(offered).map_or(otherwise, |o| DropRatio::of_excess(o, allowance))
    };
    let is_known = window.is_some();
    let offered = window.map_or((0.0, 0.0), |window| {
        (window.rate(now), window.over(parameters::WINDOW_FEW))
    });
    let tells = |offered: f64, span: std::time::Duration| {
        offered.max(allowed) * span.as_secs_f64() >= parameters::COUNTS_MIN
    };
    let is_clearly_fewer = || {
        let span = parameters::WINDOW.as_secs_f64();
        let counts = offered.0 * span;
        is_known && counts + 2.0 * counts.sqrt() + 2.0 <= allowed * span
    };
    if tells(offered.0, parameters::WINDOW) {
        excess(offered.0)
    } else if on_hold && tells(offered.1, parameters::WINDOW_FEW) {
        excess(offered.1)
    } else if is_clearly_fewer() {
        DropRatio::NONE
    } else {
        otherwise
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns the ratio after four seconds at `rps`.
    fn ratio(rps: f64, allowed: f64, on_hold: bool, directed: Option<DropRatio>) -> f64 {
        let mut window = Window::default();
        let at = |tick: u64| MonoTime::from_elapsed(Duration::from_millis(tick * 100));
        (0..40).for_each(|tick| window.add(at(tick), rps / 10.0, Duration::from_millis(100)));
        fast_ratio(Some(&mut window), at(40), allowed, on_hold, directed).as_f64()
    }

    #[test]
    fn ratio_is_the_share_above_allocation() {
        let half = DropRatio::new(DropRatio::ONE / 2).unwrap();
        for (rps, allowed, on_hold, directed, expected) in [
            (1_000.0, 250.0, false, None, 0.75),
            (1_000.0, 2_000.0, false, Some(half), 0.0),
            (20.0, 10.0, false, None, 0.0), // 6 in the window: too few
            (20.0, 10.0, false, Some(half), 0.5), // so the controller knows better
            (40.0, 10.0, true, Some(half), 0.75), // but on hold a longer look tells
            (1.0, 0.5, true, Some(half), 0.5), // unless that tells nothing either
            (1.0, 100.0, false, Some(half), 0.0), // few may come where many are allowed
            (5.0, 25.0, false, Some(half), 0.0), // clearly fewer than the 7.5 allowed in the window
            (10.0, 25.0, false, Some(half), 0.5), // not clearly
            (0.0, 6.0, false, Some(half), 0.5),
            (0.0, 7.0, false, Some(half), 0.0),
        ] {
            let got = ratio(rps, allowed, on_hold, directed);
            assert!(
                (got - expected).abs() < 1e-3,
                "{rps} of {allowed}, {on_hold}, {directed:?}: {got}"
            );
        }
    }

    #[test]
    fn without_counts_and_directive_nothing_is_refused() {
        for allowed in [0.0, 1e6, f64::NAN] {
            let got = fast_ratio(None, MonoTime::ZERO, allowed, true, None);
            assert_eq!(got, DropRatio::NONE, "{allowed}");
        }
    }
}
