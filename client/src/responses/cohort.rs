//! Cohorts: the side of a canary that an instance is on, which metrics name only while the bucket is in canary.

use plimsoll_core::report::Side;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cohort {
    /// The actual or potential side of the instance, or of the key where a canary is divided by key.
    pub(crate) side: Side,
    pub(crate) in_canary: bool,
}

const fn cohort(side: Side, in_canary: bool) -> Cohort {
    Cohort { side, in_canary }
}

/// The labels of cohorts in metrics, empty outside of canary.
pub(super) const LABELS: [(&str, &[Cohort]); 3] = [
    (
        "",
        &[cohort(Side::Control, false), cohort(Side::Canary, false)],
    ),
    (Side::Control.as_str(), &[cohort(Side::Control, true)]),
    (Side::Canary.as_str(), &[cohort(Side::Canary, true)]),
];

impl Cohort {
    pub(super) const COUNT: usize = 4;

    #[inline]
    pub(super) const fn to_bits(self) -> u8 {
        (self.in_canary as u8) << 1 | matches!(self.side, Side::Canary) as u8
    }

    #[inline]
    pub(super) const fn from_bits(bits: u8) -> Self {
        let side = if bits & 1 == 1 {
            Side::Canary
        } else {
            Side::Control
        };
        Self {
            side,
            in_canary: bits & 2 == 2,
        }
    }
}

impl Default for Cohort {
    fn default() -> Self {
        cohort(Side::Control, false)
    }
}
