//! The demand of a class's names by the bins of their rates, and the water level that lets a given
//! part of it pass.

use super::Bin;

/// Traffic at or below this rate in requests/s is none: a smoothed rate never quite reaches zero.
const TRAFFIC_MIN: f64 = 1e-6;
/// Minimum rate of a name in requests/s: an unknown name passes whole.
const NAME_RATE_MIN: f64 = 1e-6;

/// The traffic of one kind of names, in requests/s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The traffic of counted names, by bin; empty without any.
    pub bins: Vec<f64>,
    /// The traffic of the others.
    pub uncounted: f64,
    /// The mean rate of one of the others; 0 if unknown.
    pub mean: f64,
}

/// The demand of one class in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The demand of established names.
    pub established: Demand,
    /// The demand of new names, and of requests without a name.
    pub new: Demand,
    /// The number of established names.
    pub names: u32,
}

/// The rules for the names of a class that are the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// This zone's part of the new traffic of the class, 0 to 1.
    pub new_share: f64,
    /// The rate in requests/s below which an established name is not refused while all floors fit.
    pub floor: f64,
    /// The rate in requests/s that no name may exceed; infinite without one.
    pub tenant_limit: f64,
}

/// The levels of a class in requests/s: what one name may pass. Infinite where nothing is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// The level of established names.
    pub level: f64,
    /// The level of new names.
    pub new_level: f64,
}

/// All rates are finite: they are sums of counts, or were validated as they arrived.
impl Eq for Demand {}

impl Demand {
    /// All traffic.
    pub fn total(&self) -> f64 {
        self.bins.iter().sum::<f64>() + self.uncounted
    }

    /// The traffic that passes at a level.
    pub fn passes(&self, level: f64) -> f64 {
        self.steps().map(|step| step.passes(level)).sum()
    }

    /// The part of the uncounted traffic that passes at a level.
    pub fn uncounted_part(&self, level: f64) -> f64 {
        part(level, self.mean.max(NAME_RATE_MIN))
    }

    fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let counted = self
            .bins
            .iter()
            .enumerate()
            .filter(|(_, traffic)| **traffic > TRAFFIC_MIN);
        let counted = counted.filter_map(|(at, traffic)| {
            Some(Step {
                rate: Bin::at(at)?.rate(),
                traffic: *traffic,
            })
        });
        counted.chain([Step {
            rate: self.mean.max(NAME_RATE_MIN),
            traffic: self.uncounted,
        }])
    }
}

impl Tail {
    /// All traffic.
    pub fn offered(&self) -> f64 {
        self.established.total() + self.new.total()
    }

    /// The traffic without what exceeds a limit for each name.
    pub fn within(&self, tenant_limit: f64) -> f64 {
        if tenant_limit.is_finite() {
            self.established.passes(tenant_limit) + self.new.passes(tenant_limit)
        } else {
            self.offered()
        }
    }

    /// The part of the traffic that is [within](Self::within) a limit for each name, 0 to 1; 1 without traffic.
    pub fn part_within(&self, tenant_limit: f64) -> f64 {
        let part = self.within(tenant_limit) / self.offered();
        if part.is_finite() { part } else { 1.0 }
    }

    /// The traffic that passes at a level of established names.
    pub fn passes(&self, level: f64, spread: &Spread) -> f64 {
        self.steps(spread).map(|step| step.passes(level)).sum()
    }

    /// The level that lets all zones together pass `passed` requests/s. A zone that fades counts
    /// with its presence, 0 to 1.
    pub fn common_level<'a>(
        zones: impl Iterator<Item = (&'a Self, Spread, f64)>,
        passed: f64,
    ) -> f64 {
        let mut steps = Vec::new();
        for (tail, spread, presence) in zones {
            steps.extend(tail.steps(&spread).map(|step| Step {
                traffic: presence * step.traffic,
                ..step
            }));
        }
        level_of(steps, passed)
    }

    /// The levels that let the class pass the share `passing` of its demand [within](Self::within)
    /// the tenant limit. O(B log B) for B bins.
    pub fn cut(&self, passing: f64, spread: &Spread) -> Cut {
        let limit = spread.tenant_limit;
        let passed = passing * self.within(limit);
        if passing >= 1.0 {
            return Cut {
                level: f64::INFINITY,
                new_level: f64::INFINITY,
            };
        }
        let mut level = level_of(self.steps(spread).collect(), passed);
        // Floors come first: new names have what they leave.
        if level < spread.floor {
            let floors = self.established.passes(spread.floor);
            level = if floors <= passed {
                spread.floor
            } else {
                level_of(self.established.steps().collect(), passed)
            };
        }
        let left = passed - self.established.passes(level.min(limit));
        let new = level_of(self.new.steps().collect(), left.max(0.0));
        // Names that have just begun are treated like the others until their traffic shows.
        let new = if self.new.total() > TRAFFIC_MIN {
            new
        } else {
            level
        };
        Cut {
            level,
            new_level: new,
        }
    }

    /// New names together are one step more: as many tenants at the level as a twentieth of the established ones, and
    /// at least one in all zones together.
    fn steps(&self, spread: &Spread) -> impl Iterator<Item = Step> + '_ {
        let tenants = (f64::from(self.names) / 20.0).max(spread.new_share);
        let traffic = self.new.passes(spread.tenant_limit);
        let limit = spread.tenant_limit;
        let established = self
            .established
            .steps()
            .map(move |step| step.limited(limit));
        established.chain([Step {
            rate: traffic / tenants,
            traffic,
        }])
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    rate: f64,
    traffic: f64,
}

impl Step {
    fn passes(self, level: f64) -> f64 {
        self.traffic * part(level, self.rate)
    }

    /// The step without what exceeds a limit for each name.
    fn limited(self, limit: f64) -> Self {
        Self {
            rate: self.rate.min(limit),
            traffic: self.passes(limit),
        }
    }
}

/// The part that passes at a level of the requests of a name with a rate.
fn part(level: f64, rate: f64) -> f64 {
    if rate > level { level / rate } else { 1.0 }
}

/// The level that lets the steps pass `passed` in all; infinite if they do not offer as much.
fn level_of(mut steps: Vec<Step>, passed: f64) -> f64 {
    steps.retain(|step| step.traffic > TRAFFIC_MIN);
    steps.sort_unstable_by(|one, other| one.rate.total_cmp(&other.rate));
    // Steps below the level pass whole, and the others in proportion to it.
    let mut below = 0.0;
    let mut slope: f64 = steps.iter().map(|step| step.traffic / step.rate).sum();
    for step in &steps {
        if below + slope * step.rate >= passed {
            return (passed - below) / slope;
        }
        below += step.traffic;
        slope -= step.traffic / step.rate;
    }
    f64::INFINITY
}
