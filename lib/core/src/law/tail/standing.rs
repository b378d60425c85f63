//! The standing of one unlisted name: whether its class knows it for long enough, and the bin of its rate.

use crate::quantity::OutOfRange;

/// The rate of the first bin in requests/s.
const RATE_MIN: f64 = 0.05;
/// The ratio between the rates of neighbouring bins.
const STEP: f64 = 1.1;
/// Minimum relative distance from its bin for a name to change it. Larger than half a step, so that
/// chance does not.
const HYSTERESIS: f64 = 0.075;

/// A bin of rates, each a tenth above the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bin(u8);

/// The standing of a name. The default is that of a name that was never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// True once the name has had traffic for long enough to count as its own tenant.
    pub established: bool,
    /// The bin of its rate; `None` while its own counts are too few to tell.
    pub bin: Option<Bin>,
}

impl Bin {
    /// The number of bins. The last one is of half a million requests/s.
    pub const COUNT: usize = 170;

    /// Returns the bin of a rate in requests/s: the nearest one.
    pub fn of(rate: f64) -> Self {
        // The cast saturates, and NaN becomes 0.
        Self(((rate / RATE_MIN).log(STEP).round() as u8).min(Self::COUNT as u8 - 1))
    }

    /// Returns the bin of a name that was in this one and has this rate now.
    pub fn follow(self, rate: f64) -> Self {
        if (rate / self.rate() - 1.0).abs() > HYSTERESIS {
            Self::of(rate)
        } else {
            self
        }
    }

    /// The bin with this position.
    pub const fn at(index: usize) -> Option<Self> {
        if index < Self::COUNT {
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// The position of the bin.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The rate of the bin in requests/s.
    pub fn rate(self) -> f64 {
        RATE_MIN * STEP.powi(i32::from(self.0))
    }
}

impl Standing {
    /// The largest [code](Self::code).
    pub const CODE_MAX: u16 = 2 * Bin::COUNT as u16 + 1;

    /// The standing as a small number: twice the position of the bin plus one, 0 without a bin; plus one for an
    /// established name.
    pub const fn code(self) -> u16 {
        let bin = match self.bin {
            Some(Bin(index)) => index as u16 + 1,
            None => 0,
        };
        2 * bin + self.established as u16
    }

    /// The standing with this code.
    ///
    /// # Errors
    /// If no standing has it.
    pub const fn from_code(code: u32) -> Result<Self, OutOfRange> {
        if code > Self::CODE_MAX as u32 {
            return Err(OutOfRange {
                range: "a standing has a code that is known",
                got: code as f64,
            });
        }
        let bin = match code / 2 {
            0 => None,
            bin => Bin::at(bin as usize - 1),
        };
        Ok(Self {
            established: code % 2 == 1,
            bin,
        })
    }
}
