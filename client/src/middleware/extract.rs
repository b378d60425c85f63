//! The extraction of a key from a request: the seam between a service's requests and the limiter's names.

use super::Head;
use super::request::trace::trace_of;
use crate::responses::Recorder;
use crate::{KeyHandle, Verdict};

/// Maps a request to the bucket and tenant that it counts for.
///
/// [`Rules`](super::Rules) do so by path, route, method and header. Where they are not enough, use a closure over
/// handles that were resolved beforehand:
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
///     let bucket = if account.is_batch { &batches } else { &people };
///     Some(bucket.key(&account.tenant))
/// });
/// # drop(layer);
/// # Ok(()) }
/// ```
pub trait Extract: Send + Sync + 'static {
    /// Returns the key of a request. A request with `None` is admitted, unlimited and uncounted.
    ///
    /// Runs on the request path, so it should neither block nor allocate.
    fn extract(&self, request: Head<'_>) -> Option<KeyHandle>;

    /// Decides about a request; by default through the key of [`extract`](Self::extract). An implementation
    /// that decides by bucket and tenant name saves the handle of each request, and with it a contended
    /// reference count. Where the coin is coherent, the request's trace decides; see
    /// [`BucketHandle::admit_traced`](crate::BucketHandle::admit_traced).
    fn decide(&self, request: Head<'_>) -> Decision {
        self.extract(request).map_or(Decision::PASS, |key| {
            let verdict = key.admit_by_trace(|| trace_of(request));
            Decision { verdict, recorder: Some(key.recorder()) }
        })
    }
}

/// The decision about a request, and the bucket that records its response.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    pub(super) verdict: Verdict,
    pub(super) recorder: Option<Recorder>,
}

impl Decision {
    /// Admits the request, unlimited and unrecorded.
    pub const PASS: Self = Self { verdict: Verdict::Admit, recorder: None };

    /// Makes a decision by a limiter's verdict without recording the response, which rollout gates then do
    /// not see.
    #[must_use]
    pub const fn unrecorded(verdict: Verdict) -> Self {
        Self { verdict, recorder: None }
    }
}

impl<F> Extract for F
where
    F: Fn(Head<'_>) -> Option<KeyHandle> + Send + Sync + 'static,
{
    fn extract(&self, request: Head<'_>) -> Option<KeyHandle> {
        self(request)
    }
}
