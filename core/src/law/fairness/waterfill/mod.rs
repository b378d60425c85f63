//! Weighted max-min fairness with floors: who gets how much of a capacity that is not enough for everybody.
//!
//! What a claim gets follows one common water level: `a(level) = clip(weight * level, min(demand, floor), demand)`,
//! and the level is the one at which these sum to the capacity. Nobody gets more than it asked for, what one leaves
//! goes to the others by weight, and nobody could get more without taking it from one who has less for its weight
//! (Bertsekas and Gallager, *Data Networks*, section 6.5.2; the weights and floors only bend each claim's line).

/// The smallest weight there is.
const WEIGHT_MIN: f64 = 1e-6;
/// The largest weight there is.
const WEIGHT_MAX: f64 = 1e6;
/// The largest capacity that is divided: its level at the smallest weight, and sums of such, are still finite.
const CAPACITY_MAX: f64 = 1e300;
/// How many sums are kept side by side, so that one addition need not wait for the one before it.
const LANES: usize = 4;

/// What one tenant asks of a capacity. All in the unit of the capacity, usually requests/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// What it would use: finite, zero or more. `f64::MAX` stands for everything it can get.
    pub demand: f64,
    /// Its part relative to the others': 1e-6 to 1e6.
    pub weight: f64,
    /// What it gets before weights count, if it asks for so much: finite, zero or more.
    pub floor: f64,
}

/// Divides capacities. It holds nothing but scratch, so that one that is warm allocates nothing.
///
/// Callers validate what they pass. All the same nothing here panics or answers with something that is not a number:
/// a demand, floor or capacity that is negative or not finite counts as 0, a weight outside 1e-6..=1e6 as the nearer
/// end (one that is not a number as the lower), and of a capacity beyond 1e300 only so much is divided.
#[derive(Debug, Default)]
pub struct Waterfill {
    /// Four claims side by side; the last ones are filled up with claims to nothing.
    lines: Vec<Lines>,
    /// The levels at which some claim's line bends.
    bends: Vec<f64>,
}

/// What some claims get as the level rises: `clip(weight * level, floor, demand)` with `floor <= demand`.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    weight: [f64; LANES],
    floor: [f64; LANES],
    demand: [f64; LANES],
}

// === impl Waterfill ===

impl Waterfill {
    /// Fills `allocations` with what each claim gets of `capacity`, in the order of the claims: their demands when
    /// these fit, else parts that sum to the capacity (but for rounding). Floors that cannot all be met are divided by
    /// weight, none above its floor. Time O(K log K) for K claims.
    pub fn divide(&mut self, capacity: f64, claims: &[Claim], allocations: &mut Vec<f64>) {
        let capacity = counted(capacity);
        allocations.clear();
        allocations.extend(claims.iter().map(|claim| counted(claim.demand)));
        if allocations.iter().sum::<f64>() <= capacity {
            return;
        }
        self.pour(capacity, claims.iter().copied(), allocations);
    }

    /// Fills `rooms` with how much each claim may grow to before the next division, given what [`Self::divide`] made
    /// of the same `capacity` and `claims`.
    ///
    /// When all demands fit, what is left is room too, and it goes where there is least for its weight:
    /// `max(demand, weight * level)` with the level at which these sum to the capacity. Otherwise a claim that asks
    /// for less than its part by weight alone may still come back to it: `max(allocation, capacity * weight / sum of
    /// all weights)`, the weights of claims to nothing included. Time O(K log K) for K claims.
    pub fn rooms(&mut self, capacity: f64, claims: &[Claim], allocations: &[f64], rooms: &mut Vec<f64>) {
        let capacity = counted(capacity);
        rooms.clear();
        rooms.extend(claims.iter().map(|claim| counted(claim.demand)));
        if rooms.iter().sum::<f64>() <= capacity {
            // The same water-filling, with what is asked for as the floor and no end to what would be used.
            let grown = |claim: &Claim| Claim { demand: f64::MAX, floor: claim.demand, ..*claim };
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

    /// Overwrites `parts` with parts that sum to a capacity below the sum of demand.
    fn pour(&mut self, capacity: f64, claims: impl Iterator<Item = Claim>, parts: &mut [f64]) {
        let capacity = capacity.min(CAPACITY_MAX);
        self.plot(capacity, claims);
        let level = self.level(capacity);
        for (parts, lines) in parts.chunks_mut(LANES).zip(&self.lines) {
            parts.copy_from_slice(&lines.at(level)[..parts.len()]);
        }
    }

    /// Plots the line of each claim. None can get more than the capacity, so that no demand is larger.
    fn plot(&mut self, capacity: f64, claims: impl Iterator<Item = Claim>) {
        self.lines.clear();
        let mut lane = LANES;
        for claim in claims {
            if lane == LANES {
                self.lines.push(Lines::default());
                lane = 0;
            }
            let Some(lines) = self.lines.last_mut() else { return };
            lines.weight[lane] = weight(&claim);
            lines.demand[lane] = counted(claim.demand).min(capacity);
            lines.floor[lane] = counted(claim.floor).min(lines.demand[lane]);
            lane += 1;
        }
        if self.total(0.0) >= capacity {
            for lines in &mut self.lines {
                lines.demand = std::mem::take(&mut lines.floor);
            }
        }
    }

    /// The level at which all lines sum to the capacity.
    ///
    /// Between two neighbouring bends the sum is a straight line, so it is enough to know which two. They are found
    /// by halving, with a fresh sum at each bend that is asked about: a running one would take large weights out
    /// again, and what is left of a weight of 1e-6 after one of 1e6 came and went is mostly rounding.
    fn level(&mut self, capacity: f64) -> f64 {
        self.bends.clear();
        for lines in &self.lines {
            for lane in 0..LANES {
                let [weight, floor, demand] = [lines.weight[lane], lines.floor[lane], lines.demand[lane]];
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
        // Without a bend above, all lines have ended, and what is missing is rounding.
        above.map_or(below.0, |above| {
            below.0 + (above.0 - below.0) * ((capacity - below.1) / (above.1 - below.1))
        })
    }

    /// What all claims get together at a level.
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
    /// What each of the claims gets at a level.
    #[inline]
    fn at(&self, level: f64) -> [f64; LANES] {
        std::array::from_fn(|lane| {
            let part = self.weight[lane] * level;
            let part = if part > self.floor[lane] { part } else { self.floor[lane] };
            if part < self.demand[lane] { part } else { self.demand[lane] }
        })
    }
}

/// An amount as it counts.
fn counted(amount: f64) -> f64 {
    if amount.is_finite() && amount > 0.0 { amount } else { 0.0 }
}

/// A claim's weight as it counts.
fn weight(claim: &Claim) -> f64 {
    if claim.weight.is_nan() { WEIGHT_MIN } else { claim.weight.clamp(WEIGHT_MIN, WEIGHT_MAX) }
}

#[cfg(test)]
mod tests;
