//! Counts of middleware and sidecar next to those of decisions: requests that passed without one, by reason, and requests that
//! were asked for their tenant, by the result.

use crate::hot::thread_counters::rows::Rows;

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
    /// All reasons, in the order of their counters.
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

/// The result of asking a request for its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantFound {
    /// The source has named one.
    Found,
    /// The source has nothing for the request.
    Absent,
    /// The source has what is no tenant: an empty text, or, over HTTP, a header that is repeated or not UTF-8.
    Invalid,
}

impl TenantFound {
    pub(crate) const ALL: [(Self, &str); 3] = [
        (Self::Found, "found"),
        (Self::Absent, "absent"),
        (Self::Invalid, "invalid"),
    ];

    /// Returns the result for the text that a source has for a request, if any.
    #[inline]
    pub fn of(text: Option<&str>) -> Self {
        match text {
            None => Self::Absent,
            Some("") => Self::Invalid,
            Some(_) => Self::Found,
        }
    }
}

pub(crate) struct Passes(pub(crate) Rows);

impl Passes {
    pub(crate) fn new(slots: usize) -> Self {
        Self(Rows::new(slots, Pass::ALL.len() + TenantFound::ALL.len()))
    }

    #[inline]
    pub(crate) fn count(&self, pass: Pass) {
        self.0.add(pass as usize);
    }

    #[inline]
    pub(crate) fn count_tenant(&self, found: TenantFound) {
        self.0.add(Pass::ALL.len() + found as usize);
    }

    pub(crate) fn total(&self, pass: Pass) -> u64 {
        self.0.total(pass as usize)
    }

    /// Returns the requests that were asked for their tenant, by the result.
    pub(crate) fn tenants(&self) -> [(&'static str, u64); TenantFound::ALL.len()] {
        TenantFound::ALL
            .map(|(found, label)| (label, self.0.total(Pass::ALL.len() + found as usize)))
    }
}
