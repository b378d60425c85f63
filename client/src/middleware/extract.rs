//! The extraction of a key from a request: the seam between a service's requests and the limiter's names.

use std::sync::Arc;

use plimsoll_core::decision::Refusal;
use plimsoll_core::quota::Quota;

use super::request::trace::trace_of;
use super::{Head, Pass, stacked};
use crate::hot::table::Table;
use crate::limiter::layered::{Asking, Step};
use crate::responses::Recorder;
use crate::{BucketHandle, KeyHandle, Verdict};

/// Maps a request to the bucket and tenant that it counts for.
///
/// [`Rules`](super::Rules) do so by path, route, method and header. Where they are not enough, use a closure over
/// handles that were resolved beforehand. It returns the key, or the key and the number of requests that the
/// request counts as:
///
/// ```
/// use plimsoll_client::Limiter;
/// use plimsoll_client::middleware::{Head, LoadShedLayer};
///
/// /// Set by an authentication layer.
/// #[derive(Clone)]
/// struct Account { tenant: String, is_batch: bool }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (limiter, _feed) = Limiter::builder("shop")?.build()?;
/// let (people, batches) = (limiter.bucket("people")?, limiter.bucket("batches")?);
/// let layer = LoadShedLayer::new(move |request: Head<'_>| {
///     let account = request.extensions.get::<Account>()?;
///     let (bucket, cost) = if account.is_batch { (&batches, 50) } else { (&people, 1) };
///     Some((bucket.key(&account.tenant), cost))
/// });
/// # drop(layer);
/// # Ok(()) }
/// ```
pub trait Extract: Send + Sync + 'static {
    /// Returns the key of a request and its cost. A request with `None` is admitted, unlimited and uncounted.
    ///
    /// Runs on the request path, so it should neither block nor allocate.
    fn extract(&self, request: Head<'_>) -> Option<Charge>;

    /// Decides about a request; by default through the key of [`extract`](Self::extract). An implementation
    /// that decides by bucket and tenant name saves the handle of each request, and with it a contended
    /// reference count. Where the coin is coherent, the request's trace decides; see
    /// [`BucketHandle::admit_traced`](crate::BucketHandle::admit_traced).
    fn decide(&self, request: Head<'_>) -> Decision {
        let Some(Charge { key, cost }) = self.extract(request) else { return Decision::PASS };
        if stacked::is_counted(request, &key.table, key.recorder().bucket()) {
            return Decision::passed(&key.table, Pass::CountedBefore);
        }
        if let Some(step) = key.step_by_quotas(cost, || trace_of(request)) {
            return Decision::of_step(step, key.recorder(), || key.bucket());
        }
        let verdict = key.admit_cost_by_trace(cost, || trace_of(request));
        Decision::of(verdict, || key.recorder(), || key.bucket())
    }
}

/// A key, and the number of requests that a request counts as: 1, unless it is made of a pair.
#[derive(Clone, Debug)]
pub struct Charge {
    pub(super) key: KeyHandle,
    pub(super) cost: u32,
}

impl Charge {
    /// Makes a charge of at least 1 request. Beyond [`COST_MAX`](crate::COST_MAX) it is exact for quotas alone.
    #[must_use]
    pub fn new(key: KeyHandle, cost: u32) -> Self {
        Self { key, cost: cost.max(1) }
    }

    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &KeyHandle {
        &self.key
    }

    /// Returns the number of requests that the request counts as.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }
}

impl From<KeyHandle> for Charge {
    fn from(key: KeyHandle) -> Self {
        Self { key, cost: 1 }
    }
}

impl From<(KeyHandle, u32)> for Charge {
    fn from((key, cost): (KeyHandle, u32)) -> Self {
        Self::new(key, cost)
    }
}

/// The decision about a request, and the bucket that it was made for.
#[derive(Debug)]
pub struct Decision(pub(super) Decided);

/// The kinds of decisions. An admitted request takes no reference count, which all threads would write.
#[derive(Debug)]
pub(super) enum Decided {
    /// Admitted without a decision, and unrecorded.
    Passed(Pass),
    /// Admitted; the recorder takes the response.
    Admitted(Option<Recorder>),
    /// Refused.
    Refused(RefusedBy),
    /// Admitted by coin and guard, while the store of exact quotas is asked.
    Asking(Box<AskingFor>),
}

/// A refusal, and what has refused.
#[derive(Debug)]
pub(super) struct RefusedBy {
    pub(super) refusal: Refusal,
    /// The bucket, if it is known.
    pub(super) bucket: Option<BucketHandle>,
    /// The exact quota, if one has refused.
    pub(super) quota: Option<Arc<Quota>>,
}

/// A request that waits for its quotas.
#[derive(Debug)]
pub(super) struct AskingFor {
    pub(super) asking: Asking,
    pub(super) recorder: Recorder,
    pub(super) bucket: BucketHandle,
}

impl Decision {
    /// Admits the request, unlimited and unrecorded.
    pub const PASS: Self = Self(Decided::Passed(Pass::NoRule));

    /// Makes a decision by a limiter's verdict without recording the response, which rollout gates then do
    /// not see.
    #[must_use]
    pub const fn unrecorded(verdict: Verdict) -> Self {
        Self(match verdict {
            Verdict::Admit => Decided::Admitted(None),
            Verdict::Refuse(refusal) => Decided::Refused(RefusedBy { refusal, bucket: None, quota: None }),
        })
    }

    /// Admits a request without a decision, and counts it by the reason.
    pub(super) fn passed(table: &Table, pass: Pass) -> Self {
        table.passes.count(pass);
        Self(Decided::Passed(pass))
    }

    /// Makes the decision of a verdict about a request of a bucket.
    #[inline]
    pub(super) fn of(
        verdict: Verdict,
        recorder: impl FnOnce() -> Recorder,
        bucket: impl FnOnce() -> BucketHandle,
    ) -> Self {
        Self(match verdict {
            Verdict::Admit => Decided::Admitted(Some(recorder())),
            Verdict::Refuse(refusal) => {
                Decided::Refused(RefusedBy { refusal, bucket: Some(bucket()), quota: None })
            }
        })
    }

    /// Makes the decision about a request of a bucket with exact quotas.
    #[cold]
    pub(super) fn of_step(step: Step, recorder: Recorder, bucket: impl FnOnce() -> BucketHandle) -> Self {
        Self(match step {
            Step::Decided(decided) => Decided::of_quotas(decided, recorder, bucket),
            Step::Asking(asking) => {
                Decided::Asking(Box::new(AskingFor { asking, recorder, bucket: bucket() }))
            }
        })
    }
}

impl Decided {
    /// Makes the decision by a verdict of the exact layer.
    pub(super) fn of_quotas(
        decided: crate::Decided,
        recorder: Recorder,
        bucket: impl FnOnce() -> BucketHandle,
    ) -> Self {
        match decided.verdict {
            Verdict::Admit => Self::Admitted(Some(recorder)),
            Verdict::Refuse(refusal) => {
                Self::Refused(RefusedBy { refusal, bucket: Some(bucket()), quota: decided.quota })
            }
        }
    }
}

impl<F, C> Extract for F
where
    F: Fn(Head<'_>) -> Option<C> + Send + Sync + 'static,
    C: Into<Charge>,
{
    fn extract(&self, request: Head<'_>) -> Option<Charge> {
        self(request).map(Into::into)
    }
}
