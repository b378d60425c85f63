//! The layer and its settings.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use tower::retry::budget::TpsBudget;
use tower_layer::Layer;

use crate::service::Caller;
use crate::throttle::Throttle;
use crate::wait::Backoff;

/// Span of the requests that a retry budget is a share of.
const BUDGET_SPAN: Duration = Duration::from_secs(10);

type MayRepeat = dyn Fn(&Method, &str) -> bool + Send + Sync;

/// Layer of a client that waits as refusals ask, and retries within a budget and a deadline.
///
/// Clones share the retry budget and what is known of targets, also if they are set differently:
/// `layer.clone().deadline(..)` is the same caller in a greater hurry. gRPC channels need a layer each if they are
/// [throttled](Self::throttle), as their requests do not name the target.
#[derive(Clone)]
pub struct CallerLayer {
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) deadline: Option<Duration>,
    pub(crate) may_repeat: Arc<MayRepeat>,
    pub(crate) budget: Arc<TpsBudget>,
    pub(crate) throttle: Option<Arc<Mutex<Throttle>>>,
}

impl Default for CallerLayer {
    /// Up to 3 retries of idempotent methods, waits from 100 ms to 60 s, a budget of 10 % and one retry per second, no
    /// deadline and no throttling.
    fn default() -> Self {
        Self {
            retries: 3,
            backoff: Backoff {
                base: Duration::from_millis(100),
                cap: Duration::from_secs(60),
            },
            deadline: None,
            may_repeat: Arc::new(|method, _| method.is_idempotent()),
            budget: Arc::new(TpsBudget::new(BUDGET_SPAN, 1, 0.1)),
            throttle: None,
        }
    }
}

impl CallerLayer {
    /// Sets the maximum number of retries of a request.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the backoff of the first retry, which doubles with each, and the maximum wait. Half of the maximum is the
    /// longest that a server may ask for: jitter has the other half. A refusal that asks for more is returned.
    #[must_use]
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = Backoff { base, cap };
        self
    }

    /// Sets the time that a call has, retries and waits included. A shorter one of the request counts: `timeout` of
    /// reqwest, `grpc-timeout` of gRPC. A wait that would not end in time is not begun.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Chooses the requests that do no harm if they are carried out twice, by method and path; by default those of idempotent
    /// methods, which no gRPC call has.
    #[must_use]
    pub fn idempotent(
        mut self,
        may_repeat: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.may_repeat = Arc::new(may_repeat);
        self
    }

    /// Sets the share of requests of the last 10 s that are retried, from 0 to 1, and the retries per second on top,
    /// which a caller with few requests needs. The share is one of so many: 0.4 is rounded down to a third. Clones made before keep the budget they have.
    #[must_use]
    pub fn budget(mut self, share: f32, per_second: u16) -> Self {
        // The budget panics outside of its range, and a share that is no number is none. It cuts the reciprocal to a
        // whole number, which would be more than the share.
        let share = match share > 0.0 {
            true => 1.0 / ((1.0 / share.min(1.0)).ceil() + 0.25),
            false => 0.0,
        };
        self.budget = Arc::new(TpsBudget::new(BUDGET_SPAN, per_second.into(), share));
        self
    }

    /// Holds requests back at random while a target accepts less than half of them.
    #[must_use]
    pub fn throttle(mut self) -> Self {
        self.throttle = Some(Arc::default());
        self
    }
}

impl fmt::Debug for CallerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerLayer")
            .field("retries", &self.retries)
            .field("backoff", &self.backoff)
            .field("deadline", &self.deadline)
            .field("budget", &self.budget)
            .field("throttles", &self.throttle.is_some())
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for CallerLayer {
    type Service = Caller<S>;

    fn layer(&self, client: S) -> Caller<S> {
        Caller::new(self.clone(), client)
    }
}
