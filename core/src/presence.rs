//! How much of a silent zone still counts: nobody can tell a zone that died from one that is cut off.

use std::time::Duration;

/// How long what is known of a silent child is held in full.
pub const HELD: Duration = Duration::from_secs(30);
/// When nothing of a silent child counts any more.
pub const GONE: Duration = Duration::from_secs(60);

/// The share of its last known traffic with which a child counts that was last heard `silent_for` ago: 1 up to
/// [`HELD`], then falling linearly to 0 at [`GONE`].
#[must_use]
pub fn presence(silent_for: Duration) -> f64 {
    let left = GONE.saturating_sub(silent_for).as_secs_f64();
    (left / (GONE - HELD).as_secs_f64()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_then_released() {
        for (age_s, share) in [(0, 1.0), (30, 1.0), (45, 0.5), (60, 0.0), (3600, 0.0)] {
            assert!((presence(Duration::from_secs(age_s)) - share).abs() < 1e-9, "{age_s}");
        }
    }
}
