//! The interpolated percentile.

/// Returns the percentile `percent` (0..=100) of finite values: at h = (n - 1) percent / 100 of the n values
/// in ascending order, interpolated between its neighbours. `None` without values. Changes their order. O(n).
pub fn percentile(values: &mut [f64], percent: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let h = last as f64 * (percent / 100.0).clamp(0.0, 1.0);
    let below = (h.floor() as usize).min(last);
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    Some(low + (h - below as f64) * (high - low))
}
