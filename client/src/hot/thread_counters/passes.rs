//! The requests that the middleware passed without a decision, by reason: a cache line for each thread, so that
//! threads that serve requests never write to one line.

use crate::hot::sync::{self, AtomicU64, Ordering};
use crate::hot::thread_counters::slots;

/// The reason why a request passed without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pass {
    /// No rule matches the request.
    NoRule,
    /// A rule exempts the request.
    Unlimited,
    /// The request is a CORS preflight, which a browser sends on its own before the request of a page.
    Preflight,
    /// Another layer of the same limiter has decided about the request for the same bucket.
    CountedBefore,
}

impl Pass {
    /// All reasons.
    pub const ALL: [Self; 4] = [
        Self::NoRule,
        Self::Unlimited,
        Self::Preflight,
        Self::CountedBefore,
    ];

    /// Returns the value of the metric label `reason`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoRule => "no_rule",
            Self::Unlimited => "unlimited",
            Self::Preflight => "cors_preflight",
            Self::CountedBefore => "counted_before",
        }
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; Pass::ALL.len()]);

pub(crate) struct Passes {
    lines: Box<[Line]>,
}

impl Passes {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            lines: (0..=slots).map(|_| Line::default()).collect(),
        }
    }

    #[inline]
    pub(crate) fn count(&self, pass: Pass) {
        let shared = self.lines.len() - 1;
        let slot = slots::current(shared);
        if let Some(Line(counters)) = self.lines.get(slot.unwrap_or(shared)) {
            sync::add(&counters[pass as usize], 1, slot.is_none());
        }
    }

    pub(crate) fn total(&self, pass: Pass) -> u64 {
        self.lines
            .iter()
            .map(|Line(counters)| counters[pass as usize].load(Ordering::Relaxed))
            .sum()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn passes_count_even_without_a_slot() {
        for slots in [0, 1, 64] {
            let passes = Passes::new(slots);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        (0..1_000).for_each(|_| passes.count(Pass::NoRule));
                        passes.count(Pass::Preflight);
                    });
                }
            });
            let totals = Pass::ALL.map(|pass| passes.total(pass));
            assert_eq!(totals, [4_000, 0, 4, 0], "{slots} slots");
        }
    }
}
