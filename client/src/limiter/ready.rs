//! The readiness of a limiter: a start that waits for its directives admits nothing without the quotas they bring.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Limiter;
use crate::subscription::assignment::endpoints::Aggregators;

/// The time between two looks: the tick of the feed, which brings directives no faster.
const CHECKED_EVERY: Duration = Duration::from_millis(10);

impl Limiter {
    /// Returns true if every bucket that was declared or had a request has a directive, of now or of the
    /// [cache](crate::LimiterBuilder::directive_cache). Without an aggregator nothing is waited for.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let Some(control) = &self.control else { return true };
        matches!(control.aggregators, Aggregators::None)
            || control.subscription.with(|subscription, _| subscription.are_policies_known())
    }

    /// Waits until the limiter [is ready](Self::is_ready), for [`ready_within`](crate::LimiterBuilder::ready_within) at
    /// most, and returns whether it is. A service that declares its buckets, runs its [feed](crate::Feed) and awaits this
    /// before it opens its ports decides by its policy from the first request on.
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let (limiter, feed) = plimsoll_client::Limiter::builder("shop")?.aggregator("http://127.0.0.1:7410")?.build()?;
    /// let checkout = limiter.bucket("checkout")?;
    /// let feed = feed.spawn()?;
    /// if !limiter.ready().await {
    ///     eprintln!("no policy yet: requests are decided without it");
    /// }
    /// # drop((checkout, feed));
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self) -> bool {
        let within = self.control.as_ref().map_or(Duration::ZERO, |control| control.ready_within);
        let known = async {
            while !self.is_ready() {
                sleep(CHECKED_EVERY).await;
            }
        };
        timeout(within, known).await.is_ok()
    }
}
