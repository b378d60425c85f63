//! The decision of a layer about a request: by rules, or by a function of the service.

use plimsoll_client::internals::{Decision, Pass};
use plimsoll_client::{Limiter, Request};

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
    limiter.decide_recorded(
        request,
        WAITS,
        || trace_of(head),
        |recorder| stacked::is_counted(head, limiter, recorder),
    )
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
}
