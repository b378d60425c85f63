//! A snapshot of the directives in force, as a text that operators can read and a later process can verify.

mod quotas;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::decision::token_bucket::Tokens;
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::directive::{
    BucketDirective, Epoch, Headroom, KeyDirective, PoolDepth, Terms, Values, ZonePool,
};
use plimsoll_core::kill::{JUMP_MAX, KILLED_BUCKETS_MAX, Kill, KillGeneration};
use plimsoll_core::names::{Bucket, Name, Tenant, Zone, stable_hash};
use plimsoll_core::quantity::{DropRatio, Limit, Rate};
use plimsoll_core::rollout::{Cohort, Percent};
use quotas::QuotaText;
use serde::{Deserialize, Serialize};

/// The beginning of the first line: the kind of the file, and the version of its format.
const MARK: &str = "plimsoll directives 1";

/// The directives in force, from whichever aggregator they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// The highest epoch applied.
    pub(crate) epoch: Option<Epoch>,
    /// The highest kill generation of the fleet.
    pub(crate) kill: KillGeneration,
    /// The kill generations of single buckets.
    pub(crate) kills: BTreeMap<Bucket, KillGeneration>,
    /// The whole directive of every bucket.
    pub(crate) buckets: Vec<BucketDirective>,
}

/// The service and zone of a snapshot. No other service or zone restores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) service: Name,
    pub(crate) zone: Zone,
}

/// The reason why a text is not restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// The text ends early, or was changed.
    #[error("the checksum in the first line does not match the content; the file is torn or was edited")]
    Torn,
    /// The text begins with another line.
    #[error(
        "the first line does not begin with `{MARK}`; the file is of another version, or no saved directives"
    )]
    Version,
    /// A value is invalid.
    #[error("invalid content: {0}")]
    Invalid(String),
    /// The text is of another service or zone.
    #[error("saved by service `{service}` in zone `{zone}`; every instance needs a file of its own")]
    OtherOwner {
        /// The service of the text.
        service: Name,
        /// The zone of the text.
        zone: Zone,
    },
}

impl SnapshotError {
    /// The reason in one word, for a metric label.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Torn => "torn",
            Self::Version => "version",
            Self::Invalid(_) => "invalid",
            Self::OtherOwner { .. } => "other_owner",
        }
    }
}

/// The text below the first line, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    service: Name,
    zone: Zone,
    /// Seconds since 1970 by the clock of the machine that wrote it.
    written_at_s: u64,
    epoch: Option<Epoch>,
    kill_generation: KillGeneration,
    /// The generations of the buckets that were ever killed alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bucket_kill_generations: BTreeMap<Bucket, KillGeneration>,
    buckets: Vec<BucketText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketText {
    bucket: Bucket,
    #[serde(with = "LimitText")]
    limit: Limit,
    mode: Mode,
    /// The kill generations known to the controller when it decided the mode.
    #[serde(default, skip_serializing_if = "is_first")]
    mode_knows_kill: KillGeneration,
    #[serde(default, skip_serializing_if = "is_first")]
    mode_knows_bucket_kill: KillGeneration,
    canary_percent: f64,
    canary_salt: u64,
    coin: Coin,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headroom_pool: Option<PoolText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quotas: Option<Vec<QuotaText>>,
    keys: Vec<KeyText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolText {
    /// Absent without headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    rps: Option<Rate>,
    offered_rps: Rate,
    depth_factor: f64,
    burst: f64,
}

/// Returns true if no kill ever happened.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
fn is_first(generation: &KillGeneration) -> bool {
    generation.0 == 0
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Limit", rename_all = "snake_case")]
enum LimitText {
    Unknown,
    Unlimited,
    #[serde(rename = "rps")]
    PerSecond(Rate),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    tenant: Tenant,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard_rps: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered_rps: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_tenant_limit: Option<bool>,
}

impl Snapshot {
    /// The most buckets in a snapshot.
    pub(crate) const BUCKETS_MAX: usize = crate::builder::BUCKETS_MAX;

    /// Reduces the snapshot to the default class of each bucket.
    pub(crate) fn classes_only(mut self) -> Self {
        self.buckets.iter_mut().for_each(|bucket| bucket.keys.retain(|key| key.tenant.is_default_class()));
        self
    }

    /// Writes the snapshot as text, with the time of writing since 1970.
    pub(crate) fn to_text(&self, owner: &Owner, written_at: Duration) -> Result<String, serde_json::Error> {
        let text = Text {
            service: owner.service.clone(),
            zone: owner.zone.clone(),
            written_at_s: written_at.as_secs(),
            epoch: self.epoch,
            kill_generation: self.kill,
            bucket_kill_generations: self.kills.clone(),
            buckets: self.buckets.iter().map(bucket_text).collect(),
        };
        let body = serde_json::to_string_pretty(&text)?;
        Ok(with_checksum(&body))
    }

    /// Reads a text. Returns the time since 1970 when it was written as well. Linear in its length.
    pub(crate) fn of_text(text: &str, owner: &Owner) -> Result<(Self, Duration), SnapshotError> {
        let (first, body) = text.split_once('\n').ok_or(SnapshotError::Torn)?;
        let sum =
            first.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')).ok_or(SnapshotError::Version)?;
        let body = body.strip_suffix('\n').ok_or(SnapshotError::Torn)?;
        if sum != format!("{:016x}", checksum(body)) {
            return Err(SnapshotError::Torn);
        }
        let invalid = |error: &dyn std::fmt::Display| SnapshotError::Invalid(error.to_string());
        let text: Text = serde_json::from_str(body).map_err(|error| invalid(&error))?;
        if text.service != owner.service || text.zone != owner.zone {
            return Err(SnapshotError::OtherOwner { service: text.service, zone: text.zone });
        }
        // A client with such an epoch would be rejected by every aggregator.
        if text.epoch.is_some_and(|epoch| epoch.0 > JUMP_MAX) {
            return Err(invalid(&"an epoch above 2^32"));
        }
        if std::iter::once(&text.kill_generation)
            .chain(text.bucket_kill_generations.values())
            .any(|generation| !KillGeneration(0).accepts(*generation))
        {
            return Err(invalid(&"a kill generation above 2^62"));
        }
        if text.bucket_kill_generations.len() > KILLED_BUCKETS_MAX {
            return Err(invalid(&format_args!("more than {KILLED_BUCKETS_MAX} buckets killed alone")));
        }
        if text.buckets.len() > Self::BUCKETS_MAX {
            return Err(invalid(&format_args!("more than {} buckets", Self::BUCKETS_MAX)));
        }
        let buckets = text.buckets.into_iter().map(bucket_of).collect::<Result<_, _>>()?;
        let (kill, kills) = (text.kill_generation, text.bucket_kill_generations);
        let snapshot = Self { epoch: text.epoch, kill, kills, buckets };
        Ok((snapshot, Duration::from_secs(text.written_at_s)))
    }
}

/// Returns a checksum, against accidents such as a torn write.
/// Puts the first line before a body.
pub(crate) fn with_checksum(body: &str) -> String {
    format!("{MARK} {:016x}\n{body}\n", checksum(body))
}

fn checksum(body: &str) -> u64 {
    stable_hash(body.bytes())
}

fn bucket_text(directive: &BucketDirective) -> BucketText {
    let terms = &directive.terms;
    BucketText {
        bucket: directive.bucket.clone(),
        limit: terms.limit,
        mode: terms.mode,
        mode_knows_kill: terms.kill.fleet,
        mode_knows_bucket_kill: terms.kill.bucket,
        canary_percent: terms.cohort.percent.get(),
        canary_salt: terms.cohort.salt,
        coin: terms.coin,
        clients: terms.clients,
        headroom_pool: terms.pool.as_ref().map(pool_text),
        quotas: terms.quotas.as_ref().map(quotas::to_text),
        keys: directive.keys.iter().map(key_text).collect(),
    }
}

fn key_text(key: &KeyDirective) -> KeyText {
    KeyText {
        tenant: key.tenant.clone(),
        ratio: key.values.ratio.map(DropRatio::as_f64),
        guard_rps: key.values.guard,
        offered_rps: key.values.offered,
        at_tenant_limit: key.values.at_tenant_limit,
    }
}

fn pool_text(pool: &ZonePool) -> PoolText {
    PoolText {
        rps: pool.rate.rate(),
        offered_rps: pool.offered,
        depth_factor: pool.depth.as_f64(),
        burst: pool.burst.as_f64(),
    }
}

fn pool_of(text: &PoolText) -> ZonePool {
    ZonePool {
        rate: text.rps.map_or(Headroom::None, Headroom::Shared),
        offered: text.offered_rps,
        depth: PoolDepth::nearest(text.depth_factor),
        burst: Tokens::new(text.burst),
    }
}

fn bucket_of(text: BucketText) -> Result<BucketDirective, SnapshotError> {
    let percent = Percent::new(text.canary_percent).ok_or_else(|| {
        SnapshotError::Invalid(format!("canary_percent {} is no percentage", text.canary_percent))
    })?;
    let terms = Terms {
        limit: text.limit,
        mode: text.mode,
        kill: Kill { fleet: text.mode_knows_kill, bucket: text.mode_knows_bucket_kill },
        cohort: Cohort { percent, salt: text.canary_salt },
        coin: text.coin,
        clients: text.clients,
        pool: text.headroom_pool.as_ref().map(pool_of),
        quotas: text.quotas.as_deref().map(quotas::of_text).transpose()?,
        ..Terms::default()
    };
    let keys = text.keys.into_iter().map(key_of).collect::<Result<_, _>>()?;
    Ok(BucketDirective { bucket: text.bucket, whole: true, terms, keys })
}

fn key_of(text: KeyText) -> Result<KeyDirective, SnapshotError> {
    let ratio = |share: f64| {
        let invalid = || SnapshotError::Invalid(format!("ratio {share} is not from 0 to 1"));
        let within = (0.0..=1.0).contains(&share).then_some(share).ok_or_else(invalid)?;
        DropRatio::new((within * f64::from(DropRatio::ONE)).round() as u32).map_err(|_| invalid())
    };
    let values = Values {
        ratio: text.ratio.map(ratio).transpose()?,
        guard: text.guard_rps,
        offered: text.offered_rps,
        at_tenant_limit: text.at_tenant_limit,
        ..Values::default()
    };
    Ok(KeyDirective { tenant: text.tenant, values })
}

#[cfg(test)]
mod tests;
