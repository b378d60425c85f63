//! The decision about a request of several keys for a caller that answers with the key that decided it.

use std::pin::Pin;

use futures_util::FutureExt;
use plimsoll_core::decision::trace::TraceId;

use crate::hot::decision::Decided;
use crate::limiter::layered::Each;
use crate::limiter::{KeyHandle, Limiter, Request};

/// The decision of all keys together, with the index of the key that decided it.
pub type DecidedTogether = (usize, Decided);

/// A decision that waits for the store of quotas.
pub type DecidingTogether = Pin<Box<dyn Future<Output = DecidedTogether> + Send>>;

#[doc(hidden)]
impl Limiter {
    /// Decides about the keys of a request: all admit it, or none is charged. A decision without
    /// exact quotas, and one that does not wait, is ready, as `Ok`.
    pub fn decide_together(
        &self,
        requests: &[Request<'_>],
        trace: Option<TraceId>,
        waits: bool,
    ) -> Result<DecidedTogether, DecidingTogether> {
        let has_quotas = |request| {
            let subject = self.subject(request);
            subject.is_some_and(|subject| self.table.quotas.has(subject.bucket))
        };
        let waits = waits && self.table.quotas.any() && requests.iter().any(has_quotas);
        if !waits {
            let decided = self.together(requests, trace, false).now_or_never();
            return Ok(decided.unwrap_or((0, Decided::ADMITTED)));
        }
        // A bucket without room or with an invalid name has no key, and is unprotected.
        let keys = requests
            .iter()
            .enumerate()
            .filter_map(|(at, request)| Some((at, self.key(request)?, request.cost)));
        let (limiter, keys) = (
            self.clone(),
            keys.collect::<Each<(usize, KeyHandle, u32)>>(),
        );
        Err(Box::pin(async move {
            let requests: Each<Request<'_>> = keys
                .iter()
                .map(|(_, key, cost)| Request::of_key(key).cost(*cost))
                .collect();
            let (at, decided) = limiter.together(&requests, trace, true).await;
            (keys.get(at).map_or(0, |(at, ..)| *at), decided)
        }))
    }

    /// Decides, and returns the strictest key that refuses, or else one whose refusal is withheld, or else the first.
    async fn together(
        &self,
        requests: &[Request<'_>],
        trace: Option<TraceId>,
        waits: bool,
    ) -> DecidedTogether {
        let mut each = self.each(&Request::all(requests).trace(trace), waits).await;
        let ratio = |at: &usize| {
            let target = requests.get(*at).and_then(|request| self.target(request));
            target.map(|target| target.word().ratio())
        };
        let refuses =
            |(at, decided): (usize, &Decided)| (!decided.verdict.is_admit()).then_some(at);
        let strictest = each
            .iter()
            .enumerate()
            .filter_map(refuses)
            .max_by_key(ratio);
        let withheld = || each.iter().position(|decided| decided.withheld.is_some());
        let at = strictest.or_else(withheld).unwrap_or(0);
        let decided = (at < each.len()).then(|| each.swap_remove(at));
        (at, decided.unwrap_or(Decided::ADMITTED))
    }
}
