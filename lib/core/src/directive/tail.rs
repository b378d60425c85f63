//! The cut of the unlisted names of a class, as an aggregator sends it to its clients, and a zone's part of the traffic
//! of new names.

use crate::law::tail::exceeds;
use crate::quantity::{DropRatio, OutOfRange, Rate};

/// Maximum number of names near their tenant limit in one report of an aggregator, and of names with a part of their limit
/// ([`Directives::limits`](super::Directives)) in one message to it.
pub const LIMITED_MAX: usize = 512;

/// The rules for the drop ratio of an unlisted name at a client, from its rate in the zone, which the aggregator sends as a
/// [`Bin`](crate::law::tail::Bin). A new name without one has the ratio of its class. The default refuses nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailCut {
    /// The rate in the zone that an established name with a bin may pass; `None` if nothing is cut.
    pub level: Option<Rate>,
    /// The same for a new name.
    pub new_level: Option<Rate>,
    /// The drop ratio of established names without a bin.
    pub ratio: DropRatio,
    /// The tenant limit over all zones. A name near or above its zone's part of it has a directive of its own, up to
    /// [`LIMITED_MAX`] of them.
    pub tenant_limit: Option<Rate>,
}

/// The terms of one class of unlisted names. Absent means unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTerms {
    /// To a client: the levels for cutting its names.
    pub cut: Option<TailCut>,
    /// To an aggregator: its part of the traffic of new names.
    pub new_share: Option<NewShare>,
}

/// A zone's part of the traffic of new names, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewShare(u32);

impl NewShare {
    const WHOLE: u32 = 1_000_000;

    /// Validates a part in millionths, as it travels.
    ///
    /// # Errors
    /// If it is more than the whole.
    pub const fn new(millionths: u32) -> Result<Self, OutOfRange> {
        if millionths <= Self::WHOLE {
            Ok(Self(millionths))
        } else {
            Err(OutOfRange {
                range: "a part of new traffic is at most 1000000 millionths",
                got: millionths as f64,
            })
        }
    }

    /// The nearest part to a number in 0..=1.
    pub fn of(share: f64) -> Self {
        // The cast saturates, and NaN becomes 0.
        Self(((share * f64::from(Self::WHOLE)).round() as u32).min(Self::WHOLE))
    }

    /// The part in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The part as a number in 0..=1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }
}

impl TailCut {
    /// The cut of a limit of zero.
    pub const NOTHING_PASSES: Self = Self {
        level: Some(Rate::ZERO),
        new_level: Some(Rate::ZERO),
        ratio: DropRatio::ALL,
        tenant_limit: None,
    };

    /// Returns the cut without the tenant limit.
    #[must_use]
    pub fn of_level(&self) -> Self {
        Self {
            tenant_limit: None,
            ..*self
        }
    }

    /// The drop ratio of a name with a rate in the zone in requests/s, and true if the tenant limit is what stops it.
    pub fn ratio_of(&self, established: bool, rate: f64) -> (DropRatio, bool) {
        let of = |limit: Option<Rate>| match (limit, Rate::computed(rate)) {
            (Some(limit), Some(rate)) => DropRatio::of_excess(rate, limit),
            _ => DropRatio::NONE,
        };
        let is_over = |limit: &Rate| exceeds(rate, limit.per_second());
        let by_level = of(if established {
            self.level
        } else {
            self.new_level
        });
        let by_limit = of(self.tenant_limit.filter(is_over));
        (
            by_level.max(by_limit),
            by_limit > DropRatio::NONE && by_limit >= by_level,
        )
    }
}
