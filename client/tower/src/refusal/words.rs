//! The texts of each reason, for refused callers and their logs.

use plimsoll_core::decision::Reason;
use plimsoll_core::directive::LimitOwner;

// The registered problem types that refusals use, of
// https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10.
const QUOTA_EXCEEDED: ProblemType = ProblemType {
    uri: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: Some("Quota Exceeded"),
};
const REDUCED_CAPACITY: ProblemType = ProblemType {
    uri: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    title: Some("Temporary Reduced Capacity"),
};
/// The type of problems that the status describes fully (RFC 9457, section 4.2.1).
const BLANK: ProblemType = ProblemType {
    uri: ABOUT_BLANK,
    title: None,
};

pub(super) const ABOUT_BLANK: &str = "about:blank";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProblemType {
    pub(super) uri: &'static str,
    /// The title, equal for all problems of the type; `None` for the phrase of the status.
    pub(super) title: Option<&'static str>,
}

pub(super) const fn problem_type(reason: Reason) -> ProblemType {
    match reason {
        Reason::ClusterOverload | Reason::BurstGuard | Reason::ColdStart => REDUCED_CAPACITY,
        Reason::TenantLimit | Reason::TenantQuotaExceeded => QUOTA_EXCEEDED,
        Reason::QuotaDegraded => BLANK,
    }
}

/// The reason in a few words: the message of a gRPC status, and the title of a problem whose type has none.
pub(super) const fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::ClusterOverload => "The service is overloaded",
        Reason::TenantLimit => "The tenant is above its limit",
        Reason::BurstGuard => "Too many requests at once",
        Reason::ColdStart => "The service is starting",
        Reason::TenantQuotaExceeded => "The quota of the tenant is used up",
        Reason::QuotaDegraded => "The store of quotas does not answer",
    }
}

/// The reason and the remedy. `owner` sets the limit; if it is not known, the limit reads as the tenant's own.
pub(super) const fn detail(reason: Reason, owner: Option<LimitOwner>) -> &'static str {
    match reason {
        Reason::ClusterOverload => {
            "All callers together send more requests than the service can answer, and this one was refused to shed load. \
             Retry after the given time, with exponential backoff."
        }
        Reason::TenantLimit => match owner {
            Some(LimitOwner::Plan) => {
                "This tenant sends more requests than its plan allows. Send fewer, and retry after the given time."
            }
            Some(LimitOwner::Bucket) => {
                "This tenant sends more requests than any one may send here. Send fewer, and retry after the given time."
            }
            Some(LimitOwner::Tenant) | None => {
                "This tenant sends more requests than its own limit allows. Send fewer, and retry after the given time."
            }
        },
        Reason::BurstGuard => {
            "This instance received more requests at once than it may serve. Retry after the given time."
        }
        Reason::ColdStart => {
            "This instance serves few requests until it has received its limits. Retry after the given time."
        }
        Reason::TenantQuotaExceeded => {
            "This tenant has used up its quota. Do not retry before the quota is renewed: every request until then is \
             refused as well."
        }
        Reason::QuotaDegraded => {
            "The store of quotas does not answer at present, so the request was refused, although the tenant may have quota \
             left. Retry after the given time."
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_words_of_its_own() {
        for words in [title, |reason| detail(reason, None)] {
            let all: BTreeSet<&str> = Reason::ALL.into_iter().map(words).collect();
            assert_eq!(all.len(), Reason::ALL.len());
        }
        let renewed =
            |reason| detail(reason, None).contains("Do not retry before the quota is renewed");
        assert!(
            Reason::ALL
                .into_iter()
                .all(|reason| renewed(reason) == (reason == Reason::TenantQuotaExceeded))
        );
    }
}
