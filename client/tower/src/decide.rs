//! The decision of a layer about a request: by rules, or by a function of the service.

use plimsoll_client::internals::{Decision, Pass};
use plimsoll_client::{Limiter, Reason, Request};

use super::request::trace::trace_of;
use super::{Head, Rules, stacked};

/// True if a request may wait for the store of quotas before it reaches the service.
const WAITS: bool = cfg!(feature = "quota");

type RequestOf = dyn for<'a> Fn(Head<'a>) -> Option<Request<'a>> + Send + Sync;

pub(super) enum Decider {
    Rules(Rules),
    Function(Limiter, Box<RequestOf>),
}

impl Decider {
    #[inline]
    pub(super) fn decide(&self, head: Head<'_>) -> Decision {
        match self {
            Self::Rules(rules) => {
                match rules.ask_uncounted(head, |request| decide(&rules.limiter, request, head)) {
                    Ok(decision) => decision,
                    Err(pass) => rules.limiter.pass(pass),
                }
            }
            Self::Function(limiter, function) => match function(head) {
                Some(request) => decide(limiter, &request, head),
                None => limiter.pass(Pass::NoRule),
            },
        }
    }
}

#[inline]
fn decide(limiter: &Limiter, request: &Request<'_>, head: Head<'_>) -> Decision {
    let decision = limiter.decide_recorded(
        request,
        WAITS,
        || trace_of(head),
        |recorder| stacked::is_counted(head, limiter, recorder),
    );
    // After the decision: a caller that hides that a request is sent again, or claims it, gains nothing.
    if head.is_retried() && is_offered(&decision, request) {
        limiter.count_retried(request);
    }
    decision
}

/// Returns true if a request is known to be part of the offered load.
fn is_offered(decision: &Decision, request: &Request<'_>) -> bool {
    match decision {
        Decision::Passed(_) => false,
        Decision::Refused(by) => by.refusal.reason() != Reason::TenantQuotaExceeded,
        Decision::Admitted(_) => true,
        // With one key the coin has admitted it. With several, coin and store decide together, later.
        Decision::Asking(_) => request.keys().len() == 1,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use plimsoll_client::Metrics;
    use plimsoll_client::internals::Recorder;

    use super::*;

    pub(crate) fn limiter() -> Limiter {
        let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
        limiter
    }

    /// Returns the recorder of an admitted request.
    pub(crate) fn recorder(limiter: &Limiter, bucket: &str) -> Recorder {
        limiter.bucket(bucket).unwrap();
        let request = Request::new(bucket, "acme");
        match limiter.decide_recorded(&request, false, || None, |_| false) {
            Decision::Admitted(recorders) if recorders.len() == 1 => recorders[0],
            _ => panic!("a limiter without directives admits"),
        }
    }

    /// Returns the exported counts of a metric above zero, by its last label.
    pub(crate) fn exported(limiter: &Limiter, metric: &str) -> Vec<(String, u64)> {
        let text = Metrics::new(limiter).text();
        let series = text.lines().filter_map(|line| {
            let (labels, count) = line
                .strip_prefix(metric)?
                .strip_prefix('{')?
                .split_once("\"} ")?;
            let label = labels.rsplit('"').next()?;
            Some((label.to_owned(), count.parse().unwrap()))
        });
        series.filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn retries_count_and_change_no_decision() {
        let decided = |mark: Option<(&'static str, &'static str)>| {
            let plane = plimsoll_client::testing::ControlPlane::new(7);
            plane.drop_share("orders", 0.5).unwrap();
            let limiter = plane.limiter();
            let mut request = http::Request::new(());
            if let Some((name, value)) = mark {
                let value = http::HeaderValue::from_static(value);
                request.headers_mut().insert(name, value);
            }
            let decided: Vec<bool> = (0..100)
                .map(|_| {
                    let of = Request::new("orders", "acme").cost(2);
                    let decision = decide(&limiter, &of, Head::of(&request));
                    matches!(decision, Decision::Admitted(_))
                })
                .collect();
            let counts = limiter.bucket("orders").unwrap().key("acme").counts();
            (decided, counts.offered, counts.retried)
        };
        let (first, offered, retried) = decided(None);
        assert_eq!((offered, retried), (200, 0));
        assert!(first.contains(&true) && first.contains(&false));
        let claimed = decided(Some(("x-plimsoll-attempt", "1")));
        assert_eq!(claimed, (first.clone(), 200, 0), "a claim gains nothing");
        let marked = decided(Some(("x-plimsoll-attempt", "3")));
        assert_eq!(marked, (first, 200, 200));
    }
}
