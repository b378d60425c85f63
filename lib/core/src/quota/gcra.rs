//! The generic cell rate algorithm (GCRA), in the form of the command `CL.THROTTLE`, for other clients of the quota
//! server: the quotas of Plimsoll are balances.

const SECOND_NS: u64 = 1_000_000_000;

/// The parameters of a throttle: a burst of `max_burst + 1`, and one more every period divided by
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GcraRate {
    max_burst: u64,
    /// The time between two requests, rounded down: at 700,000 requests/s to 0.04 % too little.
    pub(super) emission_ns: u64,
}

/// The reason why parameters are no rate of a throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGcraRate {
    /// The count or the period is 0.
    #[error("count and period must be at least 1")]
    Zero,
    /// The rate is above one per nanosecond, or a full burst takes longer than 292 years.
    #[error("the burst, count and period are out of range")]
    OutOfRange,
}

/// The state of one throttle: the theoretical arrival time of its next request in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra {
    /// The theoretical arrival time.
    pub arrival_ns: u64,
}

/// The reply of a throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// True if the request is limited.
    pub limited: bool,
    /// The burst that a rested throttle admits: `max_burst + 1`.
    pub limit: u64,
    /// The requests that would be admitted after this one.
    pub remaining: u64,
    /// The time until the same request would be admitted, in nanoseconds; `None` if it was admitted or never will be.
    pub retry_after_ns: Option<u64>,
    /// The time until the throttle is at rest, in nanoseconds.
    pub reset_after_ns: u64,
}

impl GcraRate {
    /// Makes a rate of `count` requests per `period_s` seconds with a burst of `max_burst + 1`.
    ///
    /// # Errors
    /// When the count or the period is 0, or the interval between requests or a full burst is out of range.
    pub const fn new(max_burst: u64, count: u64, period_s: u64) -> Result<Self, InvalidGcraRate> {
        if count == 0 || period_s == 0 {
            return Err(InvalidGcraRate::Zero);
        }
        let Some(period_ns) = period_s.checked_mul(SECOND_NS) else {
            return Err(InvalidGcraRate::OutOfRange);
        };
        let emission_ns = period_ns / count;
        if emission_ns == 0 || max_burst >= i64::MAX as u64 / emission_ns {
            return Err(InvalidGcraRate::OutOfRange);
        }
        Ok(Self {
            max_burst,
            emission_ns,
        })
    }

    const fn limit(self) -> u64 {
        self.max_burst + 1
    }

    const fn tolerance_ns(self) -> u64 {
        self.limit() * self.emission_ns
    }
}

impl Gcra {
    /// Decides about `quantity` requests together, at a time of the server's clock; 0 asks without a change. All or
    /// none are admitted.
    pub fn throttle(&mut self, rate: GcraRate, at_ns: u64, quantity: u64) -> Throttled {
        let tolerance = rate.tolerance_ns();
        let arrival = self.arrival_ns.max(at_ns);
        let cost = rate.emission_ns.checked_mul(quantity);
        let next = cost.and_then(|cost| arrival.checked_add(cost));
        let latest = at_ns.saturating_add(tolerance);
        let admitted = next.filter(|next| *next <= latest);
        let arrival_after = match admitted {
            Some(next) => {
                if quantity > 0 {
                    self.arrival_ns = next;
                }
                next
            }
            None => arrival,
        };
        let retry_after_ns = match (admitted, cost) {
            (None, Some(cost)) if cost <= tolerance => next.map(|next| next.saturating_sub(latest)),
            _ => None,
        };
        Throttled {
            limited: admitted.is_none(),
            limit: rate.limit(),
            remaining: latest.saturating_sub(arrival_after) / rate.emission_ns,
            retry_after_ns,
            reset_after_ns: arrival_after.saturating_sub(at_ns),
        }
    }
}
