//! The settings of a bucket in the policy, as far as the law needs them.

use std::time::Duration;

use plimsoll_core::decision::Coin;
use plimsoll_core::directive::OnSilence;
use plimsoll_core::law::LawName;
use plimsoll_core::quantity::Rate;
use plimsoll_core::rollout::Cohort;
use plimsoll_policy::{BucketPolicy, Release};

/// The settings of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyTerms {
    pub(super) law: LawName,
    pub(super) burst: Duration,
    pub(super) tenant_limit: Option<Rate>,
    pub(super) release: Release,
    pub(super) coin: Coin,
    pub(super) on_silence: OnSilence,
    pub(super) cohort: Cohort,
}

impl PolicyTerms {
    /// The settings of a bucket of this name; the defaults for a bucket outside of the policy.
    pub(super) fn of(bucket: Option<&BucketPolicy>, name: &str) -> Self {
        let default = Self {
            law: LawName::default(),
            burst: Duration::ZERO,
            tenant_limit: None,
            release: Release::default(),
            coin: Coin::default(),
            on_silence: OnSilence::default(),
            cohort: Cohort::default(),
        };
        bucket.map_or(default, |bucket| Self {
            law: bucket.law(),
            burst: bucket.burst(),
            tenant_limit: bucket.tenant_limit(),
            release: bucket.release(),
            coin: bucket.coin(),
            on_silence: bucket.on_silence(),
            cohort: Cohort { percent: bucket.rollout().canary_percent, salt: Cohort::salt_of(name) },
        })
    }
}
