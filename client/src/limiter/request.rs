//! The request that a limiter decides about: what it counts for, and how long it may wait.

use std::time::Duration;

use plimsoll_core::decision::trace::TraceId;

use super::{BucketHandle, KeyHandle};

/// A request of a tenant to a bucket, or to several.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_client::{Limiter, Request};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (limiter, _feed) = Limiter::builder("shop").build()?;
/// let export = limiter.bucket("export")?;
/// assert!(limiter.check(&Request::new(&export, "acme").cost(50)).is_admit());
/// // All or none admit it, by one draw.
/// let (workspaces, users) = (limiter.bucket("by-workspace")?, limiter.bucket("by-user")?);
/// let both = [Request::new(&workspaces, "acme"), Request::new(&users, "jo")];
/// assert!(limiter.check(&Request::all(&both)).is_admit());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request is decided by Limiter::check or Limiter::check_async"]
pub struct Request<'a> {
    pub(crate) of: RequestOf<'a>,
    pub(crate) tenant: &'a str,
    pub(crate) cost: u32,
    pub(crate) trace: Option<TraceId>,
    /// The time to wait for an admission; zero for none.
    pub(crate) within: Duration,
}

/// The subject of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestOf<'a> {
    Name(&'a str),
    Bucket(&'a BucketHandle),
    /// A bucket's name, and the plan of the tenant.
    NameInPlan(&'a str, &'a str),
    BucketInPlan(&'a BucketHandle, &'a str),
    Key(&'a KeyHandle),
    All(&'a [Request<'a>]),
}

/// The bucket of a [`Request`]: a declared one, or a name.
#[derive(Clone, Copy, Debug)]
pub struct BucketRef<'a>(RequestOf<'a>);

impl<'a> From<&'a BucketHandle> for BucketRef<'a> {
    #[inline]
    fn from(bucket: &'a BucketHandle) -> Self {
        Self(RequestOf::Bucket(bucket))
    }
}

impl<'a> From<&'a str> for BucketRef<'a> {
    #[inline]
    fn from(name: &'a str) -> Self {
        Self(RequestOf::Name(name))
    }
}

impl<'a> RequestOf<'a> {
    /// Returns the plan of the tenant; empty without one.
    pub(crate) fn plan(self) -> &'a str {
        match self {
            Self::NameInPlan(_, plan) | Self::BucketInPlan(_, plan) => plan,
            Self::Key(key) => key.plan(),
            Self::Name(_) | Self::Bucket(_) | Self::All(_) => "",
        }
    }
}

impl<'a> Request<'a> {
    /// Makes a request of a tenant. A [declared](crate::Limiter::bucket) bucket is faster than a name. An empty tenant,
    /// and one without room in the limiter, counts as the class of its plan, or `default`. A request for the name of a bucket without
    /// room is admitted.
    #[inline]
    pub fn new(bucket: impl Into<BucketRef<'a>>, tenant: &'a str) -> Self {
        Self::of(bucket.into().0, tenant)
    }

    /// Makes a request that counts for several keys, each with its own cost, such as one by workspace and one by user.
    /// The strictest decides by one draw. A refused request keeps no token of any.
    ///
    /// The trace and the wait are those of this request, and cost and plan those of each key; without keys it is admitted. A request of several keys
    /// is no key of another: it would be admitted uncounted, and is a [setup problem](crate::SetupProblem::NestedRequest).
    #[inline]
    pub fn all(requests: &'a [Request<'a>]) -> Self {
        Self::of(RequestOf::All(requests), "")
    }

    #[inline]
    pub(crate) fn of_key(key: &'a KeyHandle) -> Self {
        Self::of(RequestOf::Key(key), key.tenant())
    }

    #[inline]
    fn of(of: RequestOf<'a>, tenant: &'a str) -> Self {
        Self {
            of,
            tenant,
            cost: 1,
            trace: None,
            within: Duration::ZERO,
        }
    }

    /// Sets the plan of a tenant that the policy does not list. It must come from where the tenant does, such as a verified
    /// token: whoever chooses the plan chooses the limits. The first plan of a tenant counts until it is idle for a
    /// minute, but for exact quotas the plan of each request, if it has one. A plan that the policy does not have is that of the class
    /// `default`, and an empty one is none.
    ///
    /// ```
    /// # use plimsoll_client::{Limiter, Request};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// let checkout = limiter.bucket("checkout")?;
    /// assert!(limiter.check(&Request::new(&checkout, "jo").plan("free")).is_admit());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.of = match self.of {
            RequestOf::Name(name) | RequestOf::NameInPlan(name, _) => {
                RequestOf::NameInPlan(name, plan)
            }
            RequestOf::Bucket(bucket) | RequestOf::BucketInPlan(bucket, _) => {
                RequestOf::BucketInPlan(bucket, plan)
            }
            // A handle has its plan, and each of several keys its own.
            of @ (RequestOf::Key(_) | RequestOf::All(_)) => of,
        };
        self
    }

    /// Sets the number of requests that this one counts as. It is admitted or refused as a whole, and takes as many
    /// tokens. A cost above a guard's depth passes when the guard is full, and leaves a debt. More than
    /// 10,000 count as 10,000, except for exact quotas. 0 decides as for one request, and counts and takes nothing.
    #[inline]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the trace of the request, which decides where the bucket's coin is coherent: the draw is equal everywhere
    /// in the fleet, and of all services that the request passes, the strictest decides.
    ///
    /// ```
    /// # use plimsoll_client::{Limiter, Request, TraceId};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let request = Request::new("checkout", "acme").trace(TraceId::of_traceparent(traceparent.as_bytes()));
    /// assert!(limiter.check(&request).is_admit());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn trace(mut self, trace: Option<TraceId>) -> Self {
        self.trace = trace;
        self
    }

    /// Lets [`check_async`](crate::Limiter::check_async) wait so long for an admission.
    #[inline]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Returns the name of the bucket; empty for a request of several.
    pub fn bucket(&self) -> &'a str {
        match self.of {
            RequestOf::Name(name) | RequestOf::NameInPlan(name, _) => name,
            RequestOf::Bucket(bucket) | RequestOf::BucketInPlan(bucket, _) => bucket.name(),
            RequestOf::Key(key) => key.bucket_name(),
            RequestOf::All(_) => "",
        }
    }

    /// Returns the tenant; empty for a request of several.
    pub fn tenant(&self) -> &'a str {
        self.tenant
    }

    /// Returns the requests of a request of several keys, or else this one.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn keys<'b>(&'b self) -> &'b [Request<'a>] {
        self.several().unwrap_or(std::slice::from_ref(self))
    }

    /// Returns the plan; empty without one.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn plan_name(&self) -> &'a str {
        self.of.plan()
    }

    #[inline]
    pub(crate) fn several(&self) -> Option<&'a [Request<'a>]> {
        match self.of {
            RequestOf::All(requests) => Some(requests),
            _ => None,
        }
    }
}
