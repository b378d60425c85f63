//! What the policy says of a bucket, as far as the law needs it.

use std::time::Duration;

use plimsoll_core::decision::Coin;
use plimsoll_core::directive::OnSilence;
use plimsoll_core::law::LawName;
use plimsoll_policy::{BucketPolicy, Release};
use plimsoll_core::quantity::Rate;
use plimsoll_core::rollout::Cohort;

/// What the policy says of the bucket, as far as the law needs it.
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
