//! The counts of the HTTP port: requests by endpoint and result, and mistakes in the configuration of proxies, each of
//! which is logged once.

use std::sync::atomic::{AtomicU64, Ordering};

/// The endpoints that are counted, as values of a label.
const ENDPOINTS: [&str; 4] = ["check", "nginx", "v1_check", "v1_report"];
/// The results that are counted, as values of a label.
const RESULTS: [&str; 7] =
    ["allowed", "refused", "withheld", "passed", "invalid", "recorded", "unknown_bucket"];
/// The kinds of mistakes, as values of a label.
const MISTAKES: [&str; 6] =
    ["no_bucket", "bucket", "bucket_not_listed", "cost", "original_method", "original_uri"];

/// An endpoint, by its place in [`ENDPOINTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Check,
    Nginx,
    V1Check,
    V1Report,
}

impl Endpoint {
    /// Returns the endpoint of a path, if requests for it are counted.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/check" => Self::Check,
            "/nginx" => Self::Nginx,
            "/v1/check" => Self::V1Check,
            "/v1/report" => Self::V1Report,
            _ => return None,
        })
    }
}

/// The result of a request, by its place in [`RESULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Refused,
    /// Allowed, with a refusal that was decided but not carried out.
    Withheld,
    /// Allowed without a decision: no rule, an exemption, a preflight, or a mistake.
    Passed,
    Invalid,
    Recorded,
    UnknownBucket,
}

/// A mistake in the configuration of a proxy, by its place in [`MISTAKES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// No header names the bucket, and there are no rules for HTTP.
    NoBucket,
    /// The header of the bucket is repeated or no name.
    Bucket,
    /// The bucket is not among those that the rules list.
    BucketNotListed,
    /// The header of the cost is repeated or no number from 1 to 4,294,967,295.
    Cost,
    /// The method of the original request is absent, repeated or malformed.
    OriginalMethod,
    /// The URI of the original request is absent, repeated or malformed.
    OriginalUri,
}

/// A number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// One of [`ENDPOINTS`].
    pub(crate) endpoint: &'static str,
    /// One of [`RESULTS`].
    pub(crate) result: &'static str,
    /// The number of requests.
    pub(crate) requests: u64,
}

/// The counts of one port.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: [[AtomicU64; RESULTS.len()]; ENDPOINTS.len()],
    mistakes: [AtomicU64; MISTAKES.len()],
}

impl Counts {
    /// Counts a request.
    pub(super) fn count(&self, endpoint: Endpoint, outcome: Outcome) {
        let of_endpoint = self.requests.get(endpoint as usize);
        if let Some(count) = of_endpoint.and_then(|outcomes| outcomes.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a mistake, and logs the first of its kind.
    #[cold]
    pub(super) fn mistake(&self, mistake: Mistake) {
        let Some(count) = self.mistakes.get(mistake as usize) else { return };
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            let kind = MISTAKES.get(mistake as usize).copied().unwrap_or_default();
            tracing::warn!(
                kind,
                remedy = mistake.remedy(),
                "request of a proxy is misconfigured, logged once"
            );
        }
    }

    /// Returns the requests by endpoint and result.
    pub(super) fn requests(&self) -> Vec<Count> {
        let by_endpoint = ENDPOINTS.into_iter().zip(&self.requests);
        let counts = by_endpoint.flat_map(|(endpoint, outcomes)| {
            RESULTS.into_iter().zip(outcomes).map(move |(result, count)| Count {
                endpoint,
                result,
                requests: count.load(Ordering::Relaxed),
            })
        });
        counts.collect()
    }

    /// Returns the mistakes by kind.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, u64)> {
        MISTAKES.into_iter().zip(self.mistakes.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

impl Mistake {
    /// Returns what the operator can do.
    const fn remedy(self) -> &'static str {
        match self {
            Self::NoBucket => {
                "such requests are admitted without a limit: let the proxy set the header x-plimsoll-bucket, or give the \
                 sidecar a --rules file with http.rules"
            }
            Self::Bucket => {
                "such requests are admitted without a limit: let the proxy replace the header x-plimsoll-bucket by one \
                 valid name"
            }
            Self::BucketNotListed => {
                "such requests are admitted without a limit: add the bucket of the header x-plimsoll-bucket to `buckets` \
                 of the --rules file, or correct the proxy"
            }
            Self::Cost => {
                "such requests count as one: let the proxy replace the header x-plimsoll-cost by one number from 1 to 4294967295"
            }
            Self::OriginalMethod => {
                "such requests are compared by the method of the check itself: let the proxy send the method of the \
                 original request as in docs/reference/sidecar-http.md"
            }
            Self::OriginalUri => {
                "such requests match only rules without a path: let the proxy send the URI of the original request as in \
                 docs/reference/sidecar-http.md"
            }
        }
    }
}
