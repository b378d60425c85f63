//! The counts of the HTTP port: requests by endpoint and result, and mistakes in the configuration
//! of proxies, each logged once.

use crate::tally::Tally;

/// In the order of [`Endpoint`].
const ENDPOINTS: [&str; 4] = ["check", "nginx", "v1_check", "v1_report"];
/// In the order of [`Outcome`].
const RESULTS: [&str; 7] = [
    "allowed",
    "refused",
    "withheld",
    "passed",
    "invalid",
    "recorded",
    "unknown_bucket",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Check,
    Nginx,
    V1Check,
    V1Report,
}

impl Endpoint {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Refused,
    /// Allowed, with a refusal that was decided but not applied.
    Withheld,
    /// Allowed without a decision: no rule, an exemption, a preflight, or a mistake.
    Passed,
    /// A request with an invalid `host`, or a JSON request with an invalid head or body.
    Invalid,
    /// A report of a response.
    Recorded,
    /// A report about a bucket without requests since the start. It is dropped.
    UnknownBucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// No header names the bucket, and there are no rules for HTTP.
    NoBucket,
    /// The header of the bucket is repeated or not a name.
    Bucket,
    /// The rules list buckets, and not this one.
    BucketNotListed,
    /// The header of the cost is repeated or not a number from 1 to 4,294,967,295.
    Cost,
    /// The method of the original request is absent, repeated or malformed.
    OriginalMethod,
    /// The URI of the original request is absent, repeated or malformed.
    OriginalUri,
}

#[derive(Debug)]
pub(crate) struct Counts {
    requests: [Tally<{ RESULTS.len() }>; ENDPOINTS.len()],
    mistakes: Tally<6>,
}

impl Default for Counts {
    fn default() -> Self {
        // In the order of `Mistake`.
        let mistakes = [
            "no_bucket",
            "bucket",
            "bucket_not_listed",
            "cost",
            "original_method",
            "original_uri",
        ];
        Self {
            requests: ENDPOINTS.map(|_| Tally::new(RESULTS)),
            mistakes: Tally::new(mistakes),
        }
    }
}

impl Counts {
    pub(super) fn count(&self, endpoint: Endpoint, outcome: Outcome) {
        if let Some(of_endpoint) = self.requests.get(endpoint as usize) {
            of_endpoint.add(outcome as usize);
        }
    }

    #[cold]
    pub(super) fn mistake(&self, mistake: Mistake) {
        let is_first = self.mistakes.add(mistake as usize);
        if is_first {
            let kind = self.mistakes.label(mistake as usize);
            let remedy = mistake.remedy();
            tracing::warn!(
                kind,
                remedy,
                "request of a proxy is misconfigured, logged once"
            );
        }
    }

    /// Returns the requests by endpoint and result. A batch counts once for each of its requests, an invalid one once.
    pub(crate) fn requests(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        let by_endpoint = ENDPOINTS.into_iter().zip(&self.requests);
        by_endpoint.flat_map(|(endpoint, results)| {
            results
                .rows()
                .map(|(result, requests)| ([endpoint, result], requests))
        })
    }

    /// Returns the mistakes in requests of proxies by kind: missing or malformed headers.
    pub(crate) fn mistakes(&self) -> [(&'static str, u64); 6] {
        self.mistakes.rows()
    }
}

impl Mistake {
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
