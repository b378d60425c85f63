//! The biased coins: pure functions of the drop ratio, a random draw and, for the dithered coin, a state.

use std::hint::select_unpredictable;

use serde::{Deserialize, Serialize};

use crate::quantity::DropRatio;

/// The kind of coin for turning a drop ratio into decisions at a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Coin {
    /// Refusals are spread evenly over requests. The default.
    #[default]
    Dithered,
    /// All hops of one request use the same draw. A request without a trace has an independent one.
    Coherent,
}

/// Returns true if the request is refused: with probability `ratio` over uniform draws.
///
/// A ratio of 1 refuses every draw and a ratio of 0 none, exactly: the draw is reduced to 31 bits, so it is
/// always below a ratio of 1, which is 2^31.
#[inline]
pub const fn refuses(ratio: DropRatio, draw: u32) -> bool {
    draw >> 1 < ratio.units()
}

/// The state of the dithered coin, which spreads refusals evenly over requests.
///
/// Every request adds `1 - ratio` to an accumulator. One request is admitted in each whole unit of
/// it: the request that covers a point drawn uniformly from the unit. The number of admitted
/// requests therefore stays within 2 of the sum of `1 - ratio`, regardless of the ratios, and yet
/// each request is admitted with probability `1 - ratio`, also the first one and requests of a
/// periodic pattern. (With a fixed point in each unit the coin would lock onto such patterns and
/// refuse all requests of one position and none of another.)
///
/// A request that reaches into the next unit could cover the points of both. It gets one at most: if it did
/// not cover the first point, it covers the next one with the probability that makes up its ratio, and the
/// rest of the next unit shares the remainder. This is systematic sampling after J.-C. Deville (INSEE, 1998),
/// as an online algorithm.
///
/// Eight bytes, to fit one atomic word. The default state has not begun; it begins with its first draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dither {
    /// The position in the present unit: 0..=1, in the units of [`DropRatio`], so that nothing is lost to
    /// rounding.
    owed: u32,
    /// The point of the unit, in the same units: above 0, at most 1, and passed once it is not above `owed`.
    /// 0 before the coin has begun.
    point: u32,
}

impl Dither {
    /// The state as one word; 0 before it has begun.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.point as u64) << 32 | self.owed as u64
    }

    /// Restores the state of [`to_bits`](Self::to_bits); any other word is clamped to a valid state.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            owed: (bits as u32).min(DropRatio::ONE),
            point: ((bits >> 32) as u32).min(DropRatio::ONE),
        }
    }

    /// Returns true if the next request is refused. Takes two independent draws, uniform over `u32`, at the
    /// start and whenever a unit ends, which is once per admission. A ratio of 0 admits and a ratio of 1
    /// refuses without touching the state.
    ///
    /// Written so that a compiler needs no branch on chance: the processor would mispredict it half of the
    /// time, which costs more than an unnecessary draw.
    #[inline]
    pub fn refuses(&mut self, ratio: DropRatio, mut draw: impl FnMut() -> (u32, u32)) -> bool {
        if ratio == DropRatio::NONE || ratio == DropRatio::ALL {
            return ratio == DropRatio::ALL;
        }
        if self.point == 0 {
            let (owed, point) = draw();
            *self = Self {
                owed: below(DropRatio::ONE, owed),
                point: 1 + below(DropRatio::ONE, point),
            };
        }
        let is_ahead = self.point > self.owed;
        // At most 1 and less than 1: no overflow.
        let reached = self.owed + (DropRatio::ONE - ratio.units());
        if reached <= DropRatio::ONE {
            self.owed = reached;
            return !(is_ahead & (self.point <= reached));
        }
        let beyond = reached - DropRatio::ONE;
        let (for_next, for_point) = draw();
        // If the point was still ahead, this request covers it and the unit ends. Otherwise it covers the
        // next unit's point with probability `beyond / owed`.
        let next = select_unpredictable(is_ahead, DropRatio::ONE, 1 + below(self.owed, for_next));
        let has_next = next <= beyond;
        let fresh = beyond + 1 + below(DropRatio::ONE - beyond, for_point);
        self.point = select_unpredictable(has_next, next, fresh);
        self.owed = beyond;
        !(is_ahead | has_next)
    }
}

/// Scales a draw to 0..bound.
#[inline]
const fn below(bound: u32, draw: u32) -> u32 {
    ((bound as u64 * draw as u64) >> 32) as u32
}

#[cfg(test)]
mod tests;
