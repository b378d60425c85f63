//! What a limiter keeps for a later process: the directives that hold, as text that people can read and a later process
//! can trust.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::directive::{BucketDirective, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::kill::{JUMP_MAX, KILLED_BUCKETS_MAX, Kill, KillGeneration, Kills};
use plimsoll_core::decision::Coin;
use plimsoll_core::rollout::Percent;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::decision::Mode;
use plimsoll_core::rollout::Cohort;
use plimsoll_core::names::stable_hash;
use serde::{Deserialize, Serialize};

/// How the first line begins: what the file is, and the version of what follows.
const MARK: &str = "plimsoll directives 1";

/// What holds, whoever said it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    /// The highest epoch applied.
    pub(crate) epoch: Option<Epoch>,
    /// The highest kill generation heard.
    pub(crate) kill: KillGeneration,
    /// Those of single buckets.
    pub(crate) kills: BTreeMap<Bucket, KillGeneration>,
    /// Every bucket, whole.
    pub(crate) buckets: Vec<BucketDirective>,
}

/// Whose directives they are: those of another service or zone say nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) service: Name,
    pub(crate) zone: Zone,
}

/// Why a text is not taken up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// The text ends early, or was changed.
    #[error("it is torn: its content is not what its first line says it is")]
    Torn,
    /// The text begins with something else.
    #[error("it does not begin with `{MARK}`: another version wrote it, or it is something else")]
    Version,
    /// What it says cannot be.
    #[error("it says what cannot be: {0}")]
    Invalid(String),
    /// Its directives are somebody else's.
    #[error("it is of service `{service}` in zone `{zone}`")]
    Stranger {
        /// Whose service.
        service: Name,
        /// In which zone.
        zone: Zone,
    },
}

impl Unfit {
    /// A short word for a metric label.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Torn => "torn",
            Self::Version => "version",
            Self::Invalid(_) => "invalid",
            Self::Stranger { .. } => "stranger",
        }
    }
}

/// The text below the first line, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    service: Name,
    zone: Zone,
    /// Seconds since 1970 by the clock of whoever wrote it.
    written_at_s: u64,
    epoch: Option<Epoch>,
    kill_generation: KillGeneration,
    /// Those of buckets that were ever killed alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bucket_kill_generations: BTreeMap<Bucket, KillGeneration>,
    buckets: Vec<BucketText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketText {
    bucket: Bucket,
    limit: LimitText,
    mode: Mode,
    /// The generations that were known when the mode was decided.
    #[serde(default, skip_serializing_if = "is_first")]
    mode_knows_kill: KillGeneration,
    #[serde(default, skip_serializing_if = "is_first")]
    mode_knows_bucket_kill: KillGeneration,
    canary_percent: f64,
    canary_salt: u64,
    coin: Coin,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    keys: Vec<KeyText>,
}

/// Whether nothing was ever killed.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
fn is_first(generation: &KillGeneration) -> bool {
    generation.0 == 0
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitText {
    Unknown,
    Unlimited,
    Rps(Rate),
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
}

impl Kept {
    /// The most buckets that are kept.
    pub(crate) const BUCKETS_MAX: usize = crate::hot::table::BUCKETS_MAX;

    /// The same with no more than what holds for everyone: each bucket's default class.
    pub(crate) fn classes_only(mut self) -> Self {
        self.buckets.iter_mut().for_each(|bucket| bucket.keys.retain(|key| key.tenant.is_default_class()));
        self
    }

    /// The text that says all this at `written_at`, a span since 1970.
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
        Ok(format!("{MARK} {:016x}\n{body}\n", checksum(&body)))
    }

    /// What a text says, and when it was written, a span since 1970. Linear in its length.
    pub(crate) fn of_text(text: &str, owner: &Owner) -> Result<(Self, Duration), Unfit> {
        let (first, body) = text.split_once('\n').ok_or(Unfit::Torn)?;
        let sum = first.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')).ok_or(Unfit::Version)?;
        let body = body.strip_suffix('\n').ok_or(Unfit::Torn)?;
        if sum != format!("{:016x}", checksum(body)) {
            return Err(Unfit::Torn);
        }
        let invalid = |error: &dyn std::fmt::Display| Unfit::Invalid(error.to_string());
        let text: Text = serde_json::from_str(body).map_err(|error| invalid(&error))?;
        if text.service != owner.service || text.zone != owner.zone {
            return Err(Unfit::Stranger { service: text.service, zone: text.zone });
        }
        // Whoever holds such numbers is refused by every sound parent.
        if text.epoch.is_some_and(|epoch| epoch.0 > JUMP_MAX)
            || Kills::default().check(text.kill_generation, &text.bucket_kill_generations).is_err()
        {
            return Err(invalid(&"an epoch or a kill generation above 2^32"));
        }
        if text.bucket_kill_generations.len() > KILLED_BUCKETS_MAX {
            return Err(invalid(&format_args!("more than {KILLED_BUCKETS_MAX} buckets killed alone")));
        }
        if text.buckets.len() > Self::BUCKETS_MAX {
            return Err(invalid(&format_args!("more than {} buckets", Self::BUCKETS_MAX)));
        }
        let buckets = text.buckets.into_iter().map(bucket_of).collect::<Result<_, _>>()?;
        let (kill, kills) = (text.kill_generation, text.bucket_kill_generations);
        let kept = Self { epoch: text.epoch, kill, kills, buckets };
        Ok((kept, Duration::from_secs(text.written_at_s)))
    }
}

/// Tells a text that was torn or changed by accident from a whole one.
fn checksum(body: &str) -> u64 {
    stable_hash(body.bytes())
}

fn bucket_text(directive: &BucketDirective) -> BucketText {
    let terms = &directive.terms;
    BucketText {
        bucket: directive.bucket.clone(),
        limit: match terms.limit {
            Limit::Unknown => LimitText::Unknown,
            Limit::Unlimited => LimitText::Unlimited,
            Limit::PerSecond(rate) => LimitText::Rps(rate),
        },
        mode: terms.mode,
        mode_knows_kill: terms.kill.fleet,
        mode_knows_bucket_kill: terms.kill.bucket,
        canary_percent: terms.cohort.percent.get(),
        canary_salt: terms.cohort.salt,
        coin: terms.coin,
        clients: terms.clients,
        keys: directive.keys.iter().map(key_text).collect(),
    }
}

fn key_text(key: &KeyDirective) -> KeyText {
    KeyText {
        tenant: key.tenant.clone(),
        ratio: key.values.ratio.map(DropRatio::as_f64),
        guard_rps: key.values.guard,
        offered_rps: key.values.offered,
    }
}

fn bucket_of(text: BucketText) -> Result<BucketDirective, Unfit> {
    let percent = Percent::new(text.canary_percent)
        .ok_or_else(|| Unfit::Invalid(format!("{} is no percentage", text.canary_percent)))?;
    let terms = Terms {
        limit: match text.limit {
            LimitText::Unknown => Limit::Unknown,
            LimitText::Unlimited => Limit::Unlimited,
            LimitText::Rps(rate) => Limit::PerSecond(rate),
        },
        mode: text.mode,
        kill: Kill { fleet: text.mode_knows_kill, bucket: text.mode_knows_bucket_kill },
        cohort: Cohort { percent, salt: text.canary_salt },
        coin: text.coin,
        clients: text.clients,
        ..Terms::default()
    };
    let keys = text.keys.into_iter().map(key_of).collect::<Result<_, _>>()?;
    Ok(BucketDirective { bucket: text.bucket, whole: true, terms, keys })
}

fn key_of(text: KeyText) -> Result<KeyDirective, Unfit> {
    let ratio = |share: f64| {
        let invalid = || Unfit::Invalid(format!("a ratio of {share}"));
        let within = (0.0..=1.0).contains(&share).then_some(share).ok_or_else(invalid)?;
        DropRatio::new((within * f64::from(DropRatio::ONE)).round() as u32).map_err(|_| invalid())
    };
    let values = Values {
        ratio: text.ratio.map(ratio).transpose()?,
        guard: text.guard_rps,
        offered: text.offered_rps,
        ..Values::default()
    };
    Ok(KeyDirective { tenant: text.tenant, values })
}

#[cfg(test)]
mod tests;
