//! Which key a request asks for: the seam between a service's requests and the limiter's names.

use http::request::Parts;

use super::trace::trace_of;
use crate::limiter::Recorder;
use crate::{KeyHandle, Verdict};

/// Says which bucket a request asks, and on whose behalf.
///
/// [`Rules`](super::Rules) do so by path, method and header. Where they do not reach, a closure over handles that
/// were resolved beforehand does:
///
/// ```
/// use http::request::Parts;
/// use plimsoll_client::Limiter;
/// use plimsoll_client::middleware::LoadShedLayer;
///
/// /// What authentication left in the request.
/// #[derive(Clone)]
/// struct Account { tenant: String, is_batch: bool }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (limiter, _feed) = Limiter::builder("shop")?.build()?;
/// let (people, batches) = (limiter.bucket("people")?, limiter.bucket("batches")?);
/// let layer = LoadShedLayer::new(move |request: &Parts| {
///     let account = request.extensions.get::<Account>()?;
///     let bucket = if account.is_batch { &batches } else { &people };
///     Some(bucket.key(&account.tenant))
/// });
/// # drop(layer);
/// # Ok(()) }
/// ```
pub trait Extract: Send + Sync + 'static {
    /// The key a request asks for. `None`: it passes, unlimited and uncounted.
    ///
    /// Runs on the request path, so it should neither block nor allocate.
    fn extract(&self, request: &Parts) -> Option<KeyHandle>;

    /// Decides about a request. Whoever can ask a bucket by the tenant's name does it here, and spares every request a
    /// handle, which threads would count together. Such a request's trace decides where the coin is coherent; see
    /// [`BucketHandle::admit_traced`](crate::BucketHandle::admit_traced).
    fn decide(&self, request: &Parts) -> Decision {
        self.extract(request).map_or(Decision::PASS, |key| {
            let verdict = key.admit_by_trace(|| trace_of(request));
            Decision { verdict, recorder: Some(key.recorder()) }
        })
    }
}

/// What becomes of a request, and where its end is written down.
#[derive(Clone, Debug)]
pub struct Decision {
    pub(super) verdict: Verdict,
    pub(super) recorder: Option<Recorder>,
}

impl Decision {
    /// It passes, unlimited and unrecorded.
    pub const PASS: Self = Self { verdict: Verdict::Admit, recorder: None };

    /// The verdict of a limiter, about a request of which nothing is to be known to any gate.
    #[must_use]
    pub const fn unrecorded(verdict: Verdict) -> Self {
        Self { verdict, recorder: None }
    }
}

impl<F> Extract for F
where
    F: Fn(&Parts) -> Option<KeyHandle> + Send + Sync + 'static,
{
    fn extract(&self, request: &Parts) -> Option<KeyHandle> {
        self(request)
    }
}
