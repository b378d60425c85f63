//! Rates on the wire: thousandths of a request per second, so that no number that travels can be NaN.

use plimsoll_core::rate::Rate;

use crate::Invalid;

/// The rate in thousandths. Only a rate of zero becomes zero; the cast saturates.
pub(crate) fn milli(rate: Rate) -> u64 {
    let nearest = (rate.per_second() * 1e3).round() as u64;
    nearest.max(u64::from(rate > Rate::ZERO))
}

/// The rate that is `milli` thousandths.
pub(crate) fn rate(milli: u64) -> Result<Rate, Invalid> {
    Ok(Rate::new(milli as f64 / 1e3)?)
}
