//! The biased coins: pure functions of the drop ratio, a draw and, where refusals are spread evenly, a state.

use std::hint::select_unpredictable;

use serde::{Deserialize, Serialize};

use crate::quantity::DropRatio;

/// How a client turns a drop ratio into decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coin {
    /// Refusals are spread evenly over requests. The default.
    #[default]
    Dithered,
    /// Every request is drawn for by itself.
    Independent,
    /// The same request is decided alike everywhere.
    Coherent,
}

/// Whether a request is to be refused: true with probability `ratio` over uniform draws.
///
/// A ratio of 1 refuses every draw and a ratio of 0 none, exactly: the draw is reduced to 31 bits, one fewer than a
/// ratio of 1 takes, so no draw slips through.
#[inline]
#[must_use]
pub const fn refuses(ratio: DropRatio, draw: u32) -> bool {
    draw >> 1 < ratio.units()
}

/// The state of a coin that spreads refusals evenly over requests.
///
/// Every request adds `1 - ratio` to what is owed, and one request is admitted in each whole unit of that: the one in
/// which a point falls that was drawn uniformly from the unit. So what is admitted never strays by 2 from the sum of
/// `1 - ratio`, whatever the ratios are, and yet each single request is admitted with probability `1 - ratio`, be it the
/// first one or one of a periodic pattern. (With a fixed point in each unit the coin would lock onto such patterns and
/// refuse all of one position and none of another.)
///
/// A request that reaches over into the next unit could be owed the points of both. It gets one: if the first unit's
/// point was not its own, it gets the next one's with a probability that makes up its ratio, and what is left of the next
/// unit shares the rest. This is systematic sampling after J.-C. Deville (INSEE, 1998), made to decide as requests come.
///
/// Eight bytes, so that it lives in one atomic word; the default has not begun and begins with its first draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dither {
    /// How far into the present unit: 0..=1, in the units of [`DropRatio`], so that nothing is lost to rounding.
    owed: u32,
    /// The unit's point, in the same units: above 0, at most 1, and passed when it is not above `owed`. 0 while the
    /// coin has not begun.
    point: u32,
}

impl Dither {
    /// The state as one word; 0 before it has begun.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.point as u64) << 32 | self.owed as u64
    }

    /// The state that [`to_bits`](Self::to_bits) gave; any other word is cut to a state.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { owed: (bits as u32).min(DropRatio::ONE), point: ((bits >> 32) as u32).min(DropRatio::ONE) }
    }

    /// How far into the present unit the coin is, spread over all of `u32`: differs from one request to the next.
    #[inline]
    #[must_use]
    pub const fn phase(self) -> u32 {
        self.owed << 1
    }

    /// Whether the next request is to be refused. Draws, two at a time, independent and uniform over all of `u32`,
    /// are taken to begin, and whenever a unit ends, which is once for each admission. A ratio of 0 admits and a ratio of 1 refuses without
    /// touching the state.
    ///
    /// Written so that a compiler can do it without branches on chance: a processor guesses those wrong half of the time,
    /// and a wrong guess costs more than a draw that is not needed.
    #[inline]
    pub fn refuses(&mut self, ratio: DropRatio, mut draw: impl FnMut() -> (u32, u32)) -> bool {
        if ratio == DropRatio::NONE || ratio == DropRatio::ALL {
            return ratio == DropRatio::ALL;
        }
        if self.point == 0 {
            let (owed, point) = draw();
            *self = Self { owed: below(DropRatio::ONE, owed), point: 1 + below(DropRatio::ONE, point) };
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
        // Where the point was ahead, it was this request's: the unit has ended. Where it was not, this request has the
        // next one's with probability `beyond / owed`.
        let next = select_unpredictable(is_ahead, DropRatio::ONE, 1 + below(self.owed, for_next));
        let has_next = next <= beyond;
        let fresh = beyond + 1 + below(DropRatio::ONE - beyond, for_point);
        self.point = select_unpredictable(has_next, next, fresh);
        self.owed = beyond;
        !(is_ahead | has_next)
    }
}

/// A draw brought down to 0..bound.
#[inline]
const fn below(bound: u32, draw: u32) -> u32 {
    ((bound as u64 * draw as u64) >> 32) as u32
}

#[cfg(test)]
mod tests;
