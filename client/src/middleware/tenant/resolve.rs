//! Tenants that take a look-up: a layer that awaits a future of the service for each request, outside of the limiter.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_layer::Layer;
use tower_service::Service;

use crate::middleware::Head;

/// The default time that a look-up may take.
const DEADLINE: Duration = Duration::from_millis(50);

/// The name that a [`ResolveTenantLayer`] found.
#[derive(Clone)]
pub(super) struct Resolved(pub(super) Arc<str>);

/// Looks the tenant of each request up by a future, such as one that asks a cache or a database, for
/// [`Tenant::resolved`](super::Tenant::resolved). It belongs outside of the [`PlimsollLayer`](crate::middleware::PlimsollLayer).
///
/// The look-up runs **before** requests are shed, also for those that are refused, so it must be cheap under overload:
/// cache its results, refusals to find one as well. A look-up that takes longer than its
/// [deadline](Self::deadline) is dropped, and the request has no tenant: it counts as the class `default`, or by the next
/// source of [`Tenant::or`](super::Tenant::or). A look-up that is ready at once sets no timer.
///
/// ```
/// use axum::{Router, routing::get};
/// use plimsoll_client::Limiter;
/// use plimsoll_client::middleware::{Head, PlimsollLayer, ResolveTenantLayer, Rule, Rules, Tenant};
/// # async fn ask_cache(key: String) -> Option<String> { Some(key) }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (limiter, _feed) = Limiter::builder("shop").build()?;
/// let resolve = ResolveTenantLayer::new(|request: Head<'_>| {
///     let key = request.header("x-api-key").map(str::to_owned);
///     async move { ask_cache(key?).await }
/// });
/// let rules = Rules::new(&limiter, Tenant::resolved(), [Rule::otherwise("shop")])?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(PlimsollLayer::new(rules))
///     .layer(resolve);
/// # drop(app);
/// # Ok(()) }
/// ```
pub struct ResolveTenantLayer<F> {
    look_up: Arc<F>,
    deadline: Duration,
}

/// A service behind a look-up of tenants. Made by [`ResolveTenantLayer`].
pub struct ResolveTenant<S, F> {
    inner: S,
    layer: ResolveTenantLayer<F>,
}

impl<F> ResolveTenantLayer<F> {
    /// Makes a layer that awaits the future which `look_up` returns for a request's head. The future is `'static`, so
    /// it takes what it needs from the head by value.
    pub fn new<Fut, N>(look_up: F) -> Self
    where
        F: Fn(Head<'_>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<N>>,
        N: Into<Arc<str>>,
    {
        Self { look_up: Arc::new(look_up), deadline: DEADLINE }
    }

    /// Sets the time that a look-up may take, by default 50 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

impl<F> Clone for ResolveTenantLayer<F> {
    fn clone(&self) -> Self {
        Self { look_up: Arc::clone(&self.look_up), deadline: self.deadline }
    }
}

impl<F> fmt::Debug for ResolveTenantLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveTenantLayer").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for ResolveTenantLayer<F> {
    type Service = ResolveTenant<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        ResolveTenant { inner, layer: self.clone() }
    }
}

impl<S: Clone, F> Clone for ResolveTenant<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, F, Fut, N, Q, R> Service<Request<Q>> for ResolveTenant<S, F>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone,
    F: Fn(Head<'_>) -> Fut,
    Fut: Future<Output = Option<N>>,
    N: Into<Arc<str>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResolveFuture<S, Fut, Q>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        // Not the name that a layer outside of this one found.
        request.extensions_mut().remove::<Resolved>();
        let look_up = (self.layer.look_up)(Head::of(&request));
        // The instance that was polled ready gets the request, and its clone the next readiness.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let waiting = Some((inner, request));
        ResolveFuture {
            state: State::LookUp { look_up, deadline: self.layer.deadline, timer: None, waiting },
        }
    }
}

pin_project! {
    /// The response future of a [`ResolveTenant`]. Dropping it drops the look-up or the request.
    pub struct ResolveFuture<S, Fut, Q>
    where
        S: Service<Request<Q>>,
    {
        #[pin]
        state: State<S, S::Future, Fut, Q>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, Called, Fut, Q> {
        LookUp {
            #[pin] look_up: Fut,
            deadline: Duration,
            #[pin] timer: Option<Sleep>,
            // Absent once it is called.
            waiting: Option<(S, Request<Q>)>,
        },
        Called { #[pin] response: Called },
    }
}

impl<S, Fut, N, Q, R> Future for ResolveFuture<S, Fut, Q>
where
    S: Service<Request<Q>, Response = Response<R>>,
    Fut: Future<Output = Option<N>>,
    N: Into<Arc<str>>,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let called = match this.state.as_mut().project() {
                StateProjected::Called { response } => return response.poll(cx),
                StateProjected::LookUp { look_up, deadline, mut timer, waiting } => {
                    let name = match look_up.poll(cx) {
                        Poll::Ready(name) => name,
                        Poll::Pending => {
                            if timer.is_none() {
                                timer.set(Some(tokio::time::sleep(*deadline)));
                            }
                            if let Some(timer) = timer.as_pin_mut() {
                                ready!(timer.poll(cx));
                            }
                            None
                        }
                    };
                    let Some((mut inner, mut request)) = waiting.take() else { return Poll::Pending };
                    if let Some(name) = name {
                        request.extensions_mut().insert(Resolved(name.into()));
                    }
                    inner.call(request)
                }
            };
            this.state.set(State::Called { response: called });
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::middleware::Tenant;
    use tokio::sync::oneshot;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    /// Responds with the tenant of the request.
    async fn echo(request: Request<()>) -> Result<Response<String>, Infallible> {
        let tenant = Tenant::resolved().or(Tenant::header("x-tenant").unwrap());
        Ok(Response::new(tenant.with(Head::of(&request), str::to_owned)))
    }

    fn request() -> Request<()> {
        Request::builder().header("x-api-key", "k-1").header("x-tenant", "other").body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_is_what_the_look_up_finds_in_time() {
        let (quick, slow) = (Duration::from_millis(50), Duration::from_millis(51));
        for (name, takes, expected) in [
            (Some("acme"), None, "acme"),
            (Some("acme"), Some(quick - Duration::from_millis(1)), "acme"),
            (None, None, "other"),
            (Some(""), None, "other"),
            (Some("acme"), Some(slow), "other"),
        ] {
            let layer = ResolveTenantLayer::new(move |request: Head<'_>| {
                let has_key = request.header("x-api-key") == Some("k-1");
                async move {
                    if let Some(takes) = takes {
                        tokio::time::sleep(takes).await;
                    }
                    name.filter(|_| has_key)
                }
            });
            let response = ServiceBuilder::new().layer(layer).service_fn(echo).oneshot(request()).await;
            assert_eq!(response.unwrap().into_body(), expected, "{name:?} {takes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_is_configurable_and_an_outer_name_does_not_remain() {
        let never = |_: Head<'_>| std::future::pending::<Option<String>>();
        let layer = ResolveTenantLayer::new(never).deadline(Duration::from_secs(3));
        let outer = ResolveTenantLayer::new(|_: Head<'_>| async { Some("outer") });
        let service = ServiceBuilder::new().layer(outer).layer(layer).service_fn(echo);
        let before = tokio::time::Instant::now();
        assert_eq!(service.oneshot(request()).await.unwrap().into_body(), "other");
        assert_eq!(before.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn cancelled_request_drops_its_look_up_and_never_reaches_the_service() {
        let (dropped, is_dropped) = oneshot::channel::<()>();
        let dropped = std::sync::Mutex::new(Some(dropped));
        let layer = ResolveTenantLayer::new(move |_: Head<'_>| {
            let dropped = dropped.lock().unwrap().take();
            async move {
                let _dropped = dropped;
                std::future::pending::<Option<String>>().await
            }
        });
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let service = ServiceBuilder::new().layer(layer).service(service_fn(move |request| {
            counter.fetch_add(1, Ordering::Relaxed);
            echo(request)
        }));
        let task = tokio::spawn(service.oneshot(request()));
        tokio::task::yield_now().await;
        task.abort();
        assert!(is_dropped.await.is_err(), "dropped with the look-up");
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }

    /// A service that must be polled ready before each call, as tower asks for.
    #[derive(Default)]
    struct Strict {
        is_ready: bool,
    }

    impl Clone for Strict {
        fn clone(&self) -> Self {
            Self::default()
        }
    }

    impl Service<Request<()>> for Strict {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.is_ready = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(std::mem::take(&mut self.is_ready), "called without being ready");
            std::future::ready(Ok(Response::default()))
        }
    }

    #[tokio::test]
    async fn instance_that_was_ready_gets_the_request() {
        let layer = ResolveTenantLayer::new(|_: Head<'_>| async {
            tokio::task::yield_now().await;
            Some("acme")
        });
        let mut service = layer.layer(Strict::default());
        for _ in 0..3 {
            assert!(service.ready().await.unwrap().call(request()).await.is_ok());
        }
    }
}
