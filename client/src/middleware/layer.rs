//! The tower layer: what decides about requests, and the settings of its refusals.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, StatusCode};
use quanta::Instant;

use super::extract::RefusedBy;
use super::refusal::{self, Format};
use super::{Decision, EitherBody, Extract, Head, RateLimitHeaders, RefusalFormat, Refused, SameBody};

/// Puts a limiter before a service. Responses have either the service's body or that of a refusal; see
/// [`same_body`](LoadShedLayer::same_body).
///
/// ```
/// use http::StatusCode;
/// use plimsoll_client::middleware::{LoadShedLayer, RateLimitHeaders, Rules};
///
/// # fn layers(rules: Rules) {
/// let layer = LoadShedLayer::new(rules)
///     .status(StatusCode::SERVICE_UNAVAILABLE)
///     .headers(RateLimitHeaders::Ietf)
///     .problem_type("https://shop.example/problems/busy");
/// # let layer = layer.same_body();
/// # drop(tower::Layer::<axum::Router>::layer(&layer, axum::Router::new()));
/// # }
/// ```
pub struct LoadShedLayer<B = EitherBody> {
    extract: Arc<dyn Extract>,
    /// If it is not the default: axum clones the services of its routes for each request, and every further
    /// reference count is written by all threads.
    format: Option<Arc<Format>>,
    body: PhantomData<fn() -> B>,
}

/// The format of layers without settings.
static DEFAULT: Format = Format::DEFAULT;

impl LoadShedLayer {
    /// Makes a layer that asks the limiter for the key that `extract` returns for a request.
    pub fn new(extract: impl Extract) -> Self {
        // The first reading calibrates the clock, which no request should wait for.
        let _ = Instant::now();
        Self { extract: Arc::new(extract), format: None, body: PhantomData }
    }

    /// Gives refusals the body type of the service, if that can be made from bytes: axum's, for example. It
    /// saves axum an allocation for each response, and the layer fits around a whole `axum::Router`.
    #[must_use]
    pub fn same_body(self) -> LoadShedLayer<SameBody> {
        LoadShedLayer { extract: self.extract, format: self.format, body: PhantomData }
    }
}

// === Refusals ===

impl<B> LoadShedLayer<B> {
    /// Sets the status of refused HTTP requests: by default 429 Too Many Requests; 503 Service Unavailable where proxies
    /// and clients treat overload so. A status that is no error, below 400, is not taken: it would turn refusals into
    /// successes. gRPC callers get `RESOURCE_EXHAUSTED`.
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
    /// [response](Refused::response). Runs on the request path, so it should not block. It also answers
    /// [gRPC calls](Refused::is_grpc).
    ///
    /// The body is bytes or text: anything that is `Into<Bytes>`. A body of axum, such as that of
    /// `Json(..).into_response()`, is a stream and does not compile here.
    ///
    /// ```
    /// use http::{HeaderValue, Response};
    /// use plimsoll_client::middleware::{LoadShedLayer, Refused, Rules};
    ///
    /// # fn layers(rules: Rules) {
    /// let layer = LoadShedLayer::new(rules).refuse_with(|refused: &Refused<'_>| {
    ///     let mut response = refused.response();
    ///     if !refused.is_grpc() {
    ///         response.headers_mut().insert("content-type", HeaderValue::from_static("text/plain"));
    ///         *response.body_mut() = format!("busy: {}", refused.reason().as_str()).into();
    ///     }
    ///     response
    /// });
    /// # let layer = layer.same_body();
    /// # drop(tower::Layer::<axum::Router>::layer(&layer, axum::Router::new()));
    /// # }
    /// ```
    #[must_use]
    pub fn refuse_with<T, F>(self, respond: F) -> Self
    where
        T: Into<Bytes>,
        F: Fn(&Refused<'_>) -> Response<T> + Send + Sync + 'static,
    {
        self.with(|format| format.respond = Some(Arc::new(move |refused| respond(refused).map(Into::into))))
    }

    fn form(self, set: impl FnOnce(RefusalFormat) -> RefusalFormat) -> Self {
        self.with(|format| format.form = set(std::mem::take(&mut format.form)))
    }

    fn with(mut self, set: impl FnOnce(&mut Format)) -> Self {
        set(Arc::make_mut(self.format.get_or_insert_with(|| Arc::new(Format::DEFAULT))));
        self
    }
}

// === Requests ===

impl<B> LoadShedLayer<B> {
    /// Decides about a request.
    #[inline]
    pub(super) fn decide(&self, request: Head<'_>) -> Decision {
        self.extract.decide(request)
    }

    /// Makes the response to a refused request.
    #[cold]
    pub(super) fn refuse(&self, request: Head<'_>, by: &RefusedBy) -> Response<Bytes> {
        let format = self.format.as_deref().unwrap_or(&DEFAULT);
        refusal::response(format, request, by, SystemTime::now())
    }
}

impl<B> Clone for LoadShedLayer<B> {
    fn clone(&self) -> Self {
        Self { extract: Arc::clone(&self.extract), format: self.format.clone(), body: PhantomData }
    }
}

impl<B> fmt::Debug for LoadShedLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadShedLayer").field("format", &self.format).finish_non_exhaustive()
    }
}
