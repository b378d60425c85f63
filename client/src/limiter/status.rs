//! The state of a limiter: its readiness, its health, and its status for the status page of a service.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::decision::ShownMode;
use plimsoll_core::directive::Posted;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::stats::AdmissionFigures;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::Limiter;
use crate::feed::{Control, FeedState, Health};
use crate::subscription::Subscription;
use crate::subscription::assignment::endpoints::Aggregators;

/// Interval at which a service that waits until it is ready checks that.
const CHECKED_EVERY: Duration = Duration::from_millis(10);

/// The state of a limiter at one moment, to be served as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The state of the feed; null for a limiter without one.
    pub feed: Option<FeedState>,
    /// The number of aggregators that the feed is connected to.
    pub connected: u64,
    /// The number of aggregators with a last connection that was refused for lack of trust, by
    /// reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// The highest controller epoch applied; null before the first.
    pub epoch: Option<u64>,
    /// Seconds since the controller last counted a report of the zone; null if it never did.
    pub upstream_age_s: Option<f64>,
    /// Decisions that no aggregator has acknowledged.
    pub unreported: u64,
    /// True while the kill file stops this process from refusing.
    pub local_kill: bool,
    /// True if every bucket has a directive, of now or of an earlier process.
    pub is_ready: bool,
    /// The decision about requests of a bucket before its policy is known, `allow` or `deny`; null without a feed.
    pub before_policy: Option<&'static str>,
    /// Requests decided so far before the policy of their bucket was known.
    pub decided_before_policy: u64,
    /// The state of the store of exact quotas: `up`, or `down` while it does not answer. Absent without a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_store: Option<&'static str>,
    /// Requests that each rule of a middleware matched, by rule.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, u64>,
    /// Requests that a middleware asked for their tenant, by result: `found`, `absent`, `invalid`.
    pub tenants: BTreeMap<&'static str, u64>,
    /// The faults in the wiring of the limiter that hold now.
    pub problems: Vec<ProblemStatus>,
    /// Every bucket that was declared or had a request.
    pub buckets: BTreeMap<String, BucketStatus>,
}

/// A fault in the wiring of a limiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProblemStatus {
    /// The kind, as in the metric `plimsoll_setup_problems`.
    pub problem: &'static str,
    /// The bucket, plan, zone, address, rule or source of tenants at fault; empty where the limiter as a whole is.
    pub subject: String,
    /// The fault, and what to do about it.
    pub text: String,
}

/// One bucket of a limiter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BucketStatus {
    /// The current mode here: `shadow`, also while killed, `canary` or `enforce`; `unknown` if no policy names the
    /// bucket, and before its first directive unless the service has set a rate for that time.
    pub mode: &'static str,
    /// The limit in requests/s over all zones; null without one, and while it is not known.
    pub limit_rps: Option<f64>,
    /// The bucket of the policy with the most similar name, if no policy names this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// The admissions of the last seconds.
    #[serde(flatten)]
    pub admissions: AdmissionFigures,
    /// The names of its exact quotas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<String>,
}

impl Limiter {
    /// Returns the health of the connection to the control plane: the feed, its streams, and the certificate that
    /// they need.
    pub fn health(&self) -> Health {
        let control = self.control.as_ref();
        control.map_or_else(Health::default, |control| control.health())
    }

    /// Returns true if every bucket that was declared or had a request has a directive, of now or of the
    /// [cache](crate::LimiterBuilder::directive_cache). Without an aggregator nothing is waited for.
    pub fn is_ready(&self) -> bool {
        let Some(control) = &self.control else {
            return true;
        };
        matches!(control.aggregators, Aggregators::None)
            || control
                .subscription
                .with(|subscription, _| subscription.are_policies_known())
    }

    /// Waits until the limiter [is ready](Self::is_ready), for [`ready_within`](crate::LimiterBuilder::ready_within) at
    /// most, and returns whether it is. A service that declares its buckets and awaits this before it opens its ports
    /// decides by its policy from the first request on.
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let (limiter, feed) = plimsoll_client::Limiter::builder("shop").aggregator("http://127.0.0.1:7410").build()?;
    /// let checkout = limiter.bucket("checkout")?;
    /// if !limiter.ready().await {
    ///     eprintln!("no policy yet: requests are decided without it");
    /// }
    /// # drop((checkout, feed));
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self) -> bool {
        let within = self
            .control
            .as_ref()
            .map_or(Duration::ZERO, |control| control.ready_within);
        let known = async {
            while !self.is_ready() {
                sleep(CHECKED_EVERY).await;
            }
        };
        timeout(within, known).await.is_ok()
    }

    /// Returns the state of the limiter, for a status page.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (limiter, _feed) = plimsoll_client::Limiter::builder("shop").build()?;
    /// limiter.bucket("checkout")?;
    /// assert_eq!(limiter.status().buckets["checkout"].mode, "unknown");
    /// # Ok(()) }
    /// ```
    pub fn status(&self) -> Status {
        let problems = self
            .setup_problems()
            .into_iter()
            .map(|problem| ProblemStatus {
                problem: problem.kind(),
                subject: problem.subject().to_owned(),
                text: problem.to_string(),
            });
        let problems = problems.collect();
        let is_up = self.table.layered.store().map(|store| store.is_up());
        let quota_store = is_up.map(|is_up| if is_up { "up" } else { "down" });
        let control = self.control.as_deref();
        Status {
            problems,
            quota_store,
            rules: self.table.wirings.matches(),
            tenants: self.table.passes.tenants().into(),
            ..control.map_or_else(Status::default, |control| self.of_control(control))
        }
    }

    fn of_control(&self, control: &Control) -> Status {
        let health = self.health();
        let mut status = control.subscription.with(|subscription, now| Status {
            feed: health.feed,
            connected: health.connected,
            before_policy: Some(control.before_policy.as_str()),
            decided_before_policy: subscription.decided_before_policy(),
            refused: health.refused,
            ..subscription.status(now)
        });
        status.is_ready = self.is_ready();
        status
            .buckets
            .iter_mut()
            .for_each(|(name, bucket)| bucket.quotas = self.quotas_of(name));
        status
    }

    fn quotas_of(&self, bucket: &str) -> Vec<String> {
        let place = self.table.known_bucket(bucket);
        let quotas = place
            .and_then(|place| self.table.quotas.get(place.bucket))
            .unwrap_or_default();
        quotas.iter().map(|quota| quota.name.to_string()).collect()
    }
}

impl Subscription {
    fn status(&mut self, now: MonoTime) -> Status {
        let unreported = self.unreported();
        let figures: BTreeMap<&Bucket, AdmissionFigures> = self.admission_figures().collect();
        let bucket = |(bucket, posted): (&Bucket, Option<&Posted>)| {
            let terms = posted.map(Posted::terms);
            let status = BucketStatus {
                mode: ShownMode::from(self.mode_of(bucket)).as_str(),
                limit_rps: terms
                    .and_then(|terms| terms.limit.shown())
                    .map(Rate::per_second),
                nearest: terms.and_then(|terms| Some(terms.unlisted?.nearest()?.to_owned())),
                admissions: figures.get(bucket).copied().unwrap_or_default(),
                quotas: Vec::new(),
            };
            (bucket.to_string(), status)
        };
        Status {
            epoch: self.directives.epoch().map(|epoch| epoch.0),
            upstream_age_s: self.upstream_age(now).map(|age| age.as_secs_f64()),
            unreported,
            local_kill: self.enforcement.observes,
            buckets: self.posted().map(bucket).collect(),
            ..Status::default()
        }
    }
}
