//! The tower layer: what decides about requests, and the settings of its refusals.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use plimsoll_client::internals::RefusedBy;
use plimsoll_client::{Limiter, Request};
use quanta::Instant;

#[cfg(doc)]
use super::PlimsollBody;
use super::decide::Decider;
use super::refusal::Format;
use super::{
    EitherBody, Head, RateLimitHeaders, RefusalFormat, RefusalOf, Refused, Rules, SameBody,
};

/// Puts a limiter before a service. Refusals have the body type of the service if that can be made from bytes, as
/// axum's can; for others see [`either_body`](PlimsollLayer::either_body). With the feature `quota` the service must be
/// `Clone`: a request may wait for the store of quotas.
///
/// ```
/// use http::StatusCode;
/// use plimsoll_tower::{PlimsollLayer, RateLimitHeaders, Rules};
///
/// # fn layers(rules: Rules) {
/// let layer = PlimsollLayer::new(rules)
///     .status(StatusCode::SERVICE_UNAVAILABLE)
///     .headers(RateLimitHeaders::Ietf)
///     .problem_type("https://shop.example/problems/busy");
/// # let _: axum::Router = axum::Router::new().layer(layer);
/// # }
/// ```
pub struct PlimsollLayer<B = SameBody> {
    pub(super) decider: Arc<Decider>,
    /// If it is not the default: axum clones the services of its routes for each request, and every further
    /// reference count is written by all threads.
    format: Option<Arc<Format>>,
    body: PhantomData<fn() -> B>,
}

static DEFAULT: Format = Format::DEFAULT;

impl PlimsollLayer {
    /// Makes a layer that decides by rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self::of(Decider::Rules(rules))
    }

    /// Makes a layer that decides by a function from a request's head to what it counts for, where rules are not
    /// enough. It names declared buckets. A request with `None` passes without a limit, and is counted as one that no
    /// rule matches.
    ///
    /// ```
    /// use plimsoll_tower::{Limiter, PlimsollLayer, Request};
    ///
    /// /// Set by an authentication layer.
    /// #[derive(Clone)]
    /// struct Account { tenant: String, is_batch: bool }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// for bucket in ["people", "batches"] {
    ///     limiter.bucket(bucket)?;
    /// }
    /// let layer = PlimsollLayer::by(&limiter, |head| {
    ///     let account = head.extensions.get::<Account>()?;
    ///     let (bucket, cost) = if account.is_batch { ("batches", 50) } else { ("people", 1) };
    ///     Some(Request::new(bucket, &account.tenant).cost(cost))
    /// });
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// # Ok(()) }
    /// ```
    pub fn by(
        limiter: &Limiter,
        request: impl for<'a> Fn(Head<'a>) -> Option<Request<'a>> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Decider::Function(limiter.clone(), Box::new(request)))
    }

    fn of(decider: Decider) -> Self {
        // The first reading calibrates the clock, which no request should wait for.
        let _ = Instant::now();
        Self {
            decider: Arc::new(decider),
            format: None,
            body: PhantomData,
        }
    }

    /// Gives responses the body [`PlimsollBody`], for services such as tonic's, which cannot make
    /// their body from bytes.
    ///
    /// ```
    /// # use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, Tenant};
    /// # use tonic::transport::Server;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// # let (_, orders) = tonic_health::server::health_reporter();
    /// let rules = [Rule::bucket("orders").prefix("/shop.Orders")];
    /// let layer = PlimsollLayer::new(Rules::new(&limiter, Tenant::header("x-tenant")?, rules)?);
    /// let server = Server::builder().layer(layer.either_body()).add_service(orders);
    /// # drop(server);
    /// # Ok(()) }
    /// ```
    pub fn either_body(self) -> PlimsollLayer<EitherBody> {
        PlimsollLayer {
            decider: self.decider,
            format: self.format,
            body: PhantomData,
        }
    }
}

// === Refusals ===

impl<B> PlimsollLayer<B> {
    /// Sets the status of refused HTTP requests: by default 429 Too Many Requests; 503 Service Unavailable where
    /// proxies and clients treat overload so. A status that is no error, below 400, is logged and not taken: it would
    /// turn refusals into successes. gRPC callers get `RESOURCE_EXHAUSTED`.
    #[must_use]
    pub fn status(self, status: StatusCode) -> Self {
        self.form(|form| form.status(status))
    }

    /// Sets the families of header fields about limits.
    #[must_use]
    pub fn headers(self, headers: RateLimitHeaders) -> Self {
        self.form(|form| form.headers(headers))
    }

    /// Sets the `type` of problem documents: a URI, which should lead to documentation for callers. By default it is
    /// the registered type that fits the reason, or else `about:blank`.
    #[must_use]
    pub fn problem_type(self, uri: &str) -> Self {
        self.form(|form| form.problem_type(uri))
    }

    /// Responds to refused requests by a closure. It may begin with the default
    /// [response](Refused::response). Runs on the request path, so it should not block. It also
    /// answers [gRPC calls](Refused::is_grpc). The body must be complete, such as text or the body
    /// of axum's `Json(..).into_response()`. A body that would have to be awaited is logged, and
    /// left out.
    ///
    /// ```
    /// use axum::{Json, http::StatusCode, response::IntoResponse};
    /// use plimsoll_tower::{PlimsollLayer, Refused, Rules};
    ///
    /// # fn layers(rules: Rules) {
    /// let layer = PlimsollLayer::new(rules).refuse_with(|refused: &Refused<'_>| {
    ///     (StatusCode::SERVICE_UNAVAILABLE, Json(["busy", refused.reason().as_str()])).into_response()
    /// });
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// # }
    /// ```
    #[must_use]
    pub fn refuse_with<T, F>(self, respond: F) -> Self
    where
        T: Body<Data = Bytes>,
        F: Fn(&Refused<'_>) -> Response<T> + Send + Sync + 'static,
    {
        self.with(|format| {
            format.respond = Some(Arc::new(move |refused| respond(refused).map(complete)))
        })
    }

    fn form(self, set: impl FnOnce(RefusalFormat) -> RefusalFormat) -> Self {
        self.with(|format| format.form = set(std::mem::take(&mut format.form)))
    }

    fn with(mut self, set: impl FnOnce(&mut Format)) -> Self {
        set(Arc::make_mut(
            self.format.get_or_insert_with(|| Arc::new(Format::DEFAULT)),
        ));
        self
    }
}

impl<B> PlimsollLayer<B> {
    #[cold]
    pub(super) fn refuse(&self, request: Head<'_>, by: &RefusedBy) -> Response<Bytes> {
        let format = self.format.as_deref().unwrap_or(&DEFAULT);
        let of = RefusalOf {
            refusal: by.refusal,
            bucket: by.bucket(),
            limit: by.limit(),
            tenant_limit: by.tenant_limit(),
            quota: by.quota.as_deref(),
            at: SystemTime::now(),
        };
        format.response(&Refused::new(&format.form, request, of))
    }
}

fn complete(body: impl Body<Data = Bytes>) -> Bytes {
    let Some(Ok(body)) = body.collect().now_or_never() else {
        tracing::error!("the body of a refusal by refuse_with is no complete one, and is left out");
        return Bytes::new();
    };
    body.to_bytes()
}

impl<B> Clone for PlimsollLayer<B> {
    fn clone(&self) -> Self {
        Self {
            decider: Arc::clone(&self.decider),
            format: self.format.clone(),
            body: PhantomData,
        }
    }
}

impl<B> fmt::Debug for PlimsollLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlimsollLayer")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
