//! Weighted max-min fairness with floors, by water-filling.
//!
//! The allocation of a claim follows one common water level, `a(level) = clip(weight * level,
//! min(demand, floor), demand)`, at the level where the allocations sum to the capacity. No claim
//! gets more than its demand, its unused part passes to the others by weight, and no claim could
//! grow without taking from a claim with less for its weight (Bertsekas and Gallager, *Data
//! Networks*, section 6.5.2; weights and floors only bend each claim's line).

/// The smallest weight.
const WEIGHT_MIN: f64 = 1e-6;
/// The largest weight.
const WEIGHT_MAX: f64 = 1e6;
/// Maximum capacity. Divided by the minimum weight, and summed over all claims, it is still finite.
const CAPACITY_MAX: f64 = 1e300;
/// The number of independent partial sums, so that an addition need not wait for the one before it.
const LANES: usize = 4;

/// The claim of one tenant on a capacity, in the unit of the capacity, usually requests/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FillClaim {
    /// The demand: finite, zero or more. `f64::MAX` asks for everything.
    pub demand: f64,
    /// The weight relative to the others: 1e-6 to 1e6.
    pub weight: f64,
    /// The floor, allocated before weights count, up to the demand: finite, zero or more.
    pub floor: f64,
}

/// Divides capacities. Holds only scratch space, so that a warm instance allocates nothing.
///
/// Callers validate their input. Even so nothing here panics or returns NaN: a demand, floor or capacity that
/// is negative or not finite counts as 0, a weight outside 1e-6..=1e6 as the nearer end (NaN as the lower),
/// and a capacity beyond 1e300 as 1e300.
#[derive(Debug, Default)]
pub struct Waterfill {
    /// Groups of four claims; the last group is padded with empty claims.
    lines: Vec<Lines>,
    /// The levels at which the line of a claim bends.
    bends: Vec<f64>,
}

/// The allocations of four claims as a function of the level: `clip(weight * level, floor, demand)`, `floor
/// <= demand`.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    weight: [f64; LANES],
    floor: [f64; LANES],
    demand: [f64; LANES],
}

// === impl Waterfill ===

impl Waterfill {
    /// Fills `allocations` with the allocation of each claim, in the order of the claims: the demands if they
    /// fit, else parts that sum to the capacity (up to rounding). Floors that cannot all be met are divided
    /// by weight, none above its floor. Time O(K log K) for K claims.
    pub fn divide(&mut self, capacity: f64, claims: &[FillClaim], allocations: &mut Vec<f64>) {
        let capacity = counted(capacity);
        allocations.clear();
        allocations.extend(claims.iter().map(|claim| counted(claim.demand)));
        if allocations.iter().sum::<f64>() <= capacity {
            return;
        }
        self.pour(capacity, claims.iter().copied(), allocations);
    }

    /// Fills `rooms` with the maximum rate that each claim may grow to before the next division,
    /// given the result of [`Self::divide`] for the same `capacity` and `claims`.
    ///
    /// When all demands fit, the unused capacity is room too and passes to the claims with the
    /// least for their weight: `max(demand, weight * level)` at the level where these sum to the
    /// capacity. Otherwise a claim with a demand below its part by weight may grow back to that
    /// part: `max(allocation, capacity * weight / sum of all weights)`, the weights of empty claims
    /// included. Time O(K log K) for K claims.
    pub fn rooms(
        &mut self,
        capacity: f64,
        claims: &[FillClaim],
        allocations: &[f64],
        rooms: &mut Vec<f64>,
    ) {
        let capacity = counted(capacity);
        rooms.clear();
        rooms.extend(claims.iter().map(|claim| counted(claim.demand)));
        if rooms.iter().sum::<f64>() <= capacity {
            // Water-filling again, with the demands as floors and unlimited demand.
            let grown = |claim: &FillClaim| FillClaim {
                demand: f64::MAX,
                floor: claim.demand,
                ..*claim
            };
            self.pour(capacity, claims.iter().map(grown), rooms);
        } else {
            let weights: f64 = claims.iter().map(weight).sum();
            for (room, claim) in rooms.iter_mut().zip(claims) {
                *room = capacity * (weight(claim) / weights);
            }
        }
        for (room, allocation) in rooms.iter_mut().zip(allocations) {
            *room = room.max(counted(*allocation));
        }
    }

    /// Overwrites `parts` with allocations that sum to `capacity`, which must be less than the sum of the demands.
    fn pour(&mut self, capacity: f64, claims: impl Iterator<Item = FillClaim>, parts: &mut [f64]) {
        let capacity = capacity.min(CAPACITY_MAX);
        self.plot(capacity, claims);
        let level = self.level(capacity);
        for (four, lines) in parts.chunks_mut(LANES).zip(&self.lines) {
            four.copy_from_slice(&lines.at(level)[..four.len()]);
        }
    }

    /// Plots the line of each claim. Demands are capped at the capacity, which no allocation can exceed.
    fn plot(&mut self, capacity: f64, claims: impl Iterator<Item = FillClaim>) {
        self.lines.clear();
        let mut lane = LANES;
        for claim in claims {
            if lane == LANES {
                self.lines.push(Lines::default());
                lane = 0;
            }
            let Some(lines) = self.lines.last_mut() else {
                return;
            };
            lines.weight[lane] = weight(&claim);
            lines.demand[lane] = counted(claim.demand).min(capacity);
            lines.floor[lane] = counted(claim.floor).min(lines.demand[lane]);
            lane += 1;
        }
        // The floors alone exceed the capacity: they become the demands, and are divided by weight.
        if self.total(0.0) >= capacity {
            for lines in &mut self.lines {
                lines.demand = std::mem::take(&mut lines.floor);
            }
        }
    }

    /// Returns the level where all lines sum to the capacity.
    ///
    /// Between two neighbouring bends the sum is a straight line, so two bends determine it. They
    /// are found by bisection with a fresh sum at each bend. A running sum would subtract large
    /// weights again, and a weight of 1e-6 that remains after one of 1e6 was added and subtracted
    /// is mostly rounding.
    fn level(&mut self, capacity: f64) -> f64 {
        self.bends.clear();
        for lines in &self.lines {
            for lane in 0..LANES {
                let [weight, floor, demand] =
                    [lines.weight[lane], lines.floor[lane], lines.demand[lane]];
                if floor < demand {
                    self.bends.push(demand / weight);
                    if floor > 0.0 {
                        self.bends.push(floor / weight);
                    }
                }
            }
        }
        let mut bends = std::mem::take(&mut self.bends);
        let mut open = &mut bends[..];
        let (mut below, mut above) = ((0.0, self.total(0.0)), None);
        while !open.is_empty() {
            let middle = open.len() / 2;
            let (lower, bend, upper) = open.select_nth_unstable_by(middle, f64::total_cmp);
            let total = self.total(*bend);
            if total < capacity {
                (open, below) = (upper, (*bend, total));
            } else {
                (open, above) = (lower, Some((*bend, total)));
            }
        }
        self.bends = bends;
        // Above the last bend all lines are flat; the difference is rounding.
        above.map_or(below.0, |above| {
            below.0 + (above.0 - below.0) * ((capacity - below.1) / (above.1 - below.1))
        })
    }

    fn total(&self, level: f64) -> f64 {
        let mut sums = [0.0; LANES];
        for lines in &self.lines {
            let at = lines.at(level);
            for lane in 0..LANES {
                sums[lane] += at[lane];
            }
        }
        sums.iter().sum()
    }
}

// === impl Lines ===

impl Lines {
    #[inline]
    fn at(&self, level: f64) -> [f64; LANES] {
        std::array::from_fn(|lane| {
            let part = self.weight[lane] * level;
            let part = if part > self.floor[lane] {
                part
            } else {
                self.floor[lane]
            };
            if part < self.demand[lane] {
                part
            } else {
                self.demand[lane]
            }
        })
    }
}

/// Returns the amount, or 0 if it is negative or not finite.
fn counted(amount: f64) -> f64 {
    if amount.is_finite() && amount > 0.0 {
        amount
    } else {
        0.0
    }
}

/// Returns the weight of a claim, clamped to the range of weights.
fn weight(claim: &FillClaim) -> f64 {
    if claim.weight.is_nan() {
        WEIGHT_MIN
    } else {
        claim.weight.clamp(WEIGHT_MIN, WEIGHT_MAX)
    }
}

#[cfg(test)]
mod tests;
