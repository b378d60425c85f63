//! The readiness of a limiter: a start that waits for its directives admits nothing without the quotas they bring.

use std::time::Duration;

use plimsoll_core::quantity::DropRatio;
use tokio::time::{sleep, timeout};

use super::Limiter;
use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::Table;
use crate::subscription::assignment::endpoints::Aggregators;

/// The time between two looks: the tick of the feed, which brings directives no faster.
const CHECKED_EVERY: Duration = Duration::from_millis(10);

/// The decision about requests of a bucket without a known policy: before its first directive,
/// unless an earlier process has saved one or the service itself has set a
/// [rate](crate::LimiterBuilder::cold_rps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeforePolicy {
    /// They are admitted, without their quotas.
    #[default]
    Allow,
    /// They are refused, for [`Reason::ColdStart`](crate::Reason::ColdStart).
    Deny,
}

impl BeforePolicy {
    /// Returns the word in settings, metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    pub(crate) fn word(self) -> DirectiveWord {
        match self {
            Self::Allow => DirectiveWord::NOTHING,
            Self::Deny => DirectiveWord::new(DropRatio::ALL).cold(true).enforced(true),
        }
    }
}

impl std::str::FromStr for BeforePolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Allow, Self::Deny];
        all.into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or("write allow or deny")
    }
}

impl Table {
    /// Publishes what a bucket follows before its first directive, unless it has a default class already.
    pub(crate) fn begin_bucket(&self, bucket: u32, default_key: u32) {
        if self.default_key(bucket).is_some() {
            return;
        }
        #[cfg(feature = "testing")]
        if let Some(word) = self.hooks.fallback() {
            self.publish(default_key, word);
        }
        if self.before_policy.is_held() && self.own_directive(default_key) == DirectiveWord::NOTHING
        {
            self.publish(default_key, self.before_policy);
        }
    }
}

impl Limiter {
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
    /// most, and returns whether it is. A service that declares its buckets, and awaits this
    /// before it opens its ports decides by its policy from the first request on.
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
}
