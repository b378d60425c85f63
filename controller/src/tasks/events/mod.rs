//! What happened to the fleet, as one ordered list for people: `plimsoll events`, a webhook and Grafana show it. An event
//! is made here once; its log line is written from it.
//!
//! * `list`: the latest events, bounded in number and age. Pure.
//! * `log`: the handle of a running controller, and the task that saves.
//! * `place`: two files of the state directory, or a document of the store that several controllers share.
//! * `certificates`: follows certificates and tokens.
//! * `webhook`: sends events to other systems.
//! * `routes`: the page at the admin port.

mod certificates;
mod list;
mod log;
mod place;
mod routes;
#[cfg(test)]
mod tests;
mod webhook;

pub use self::routes::{EVENTS, EventPage, PAGE_MAX, QUOTA_RESET, QuotaReset};
pub(crate) use self::webhook::Receiver;
pub use self::webhook::{EventArgs, EventArgsError};

pub(crate) use self::certificates::follow as follow_certificates;
pub(crate) use self::log::{EventLog, EventSaver};
pub(crate) use self::place::EventPlace;
pub(crate) use self::routes::{EventQuery, routes};

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit::cut;

/// Maximum length of each text of an event, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 512;

/// Something that happened to the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Greater than the number of every event before, also over restarts and other leaders. Numbers have gaps.
    pub number: u64,
    /// The time in milliseconds since 1970 by the controller's clock.
    pub time_ms: i64,
    /// The kind.
    pub kind: EventKind,
    /// How urgently an operator wants to know it.
    pub severity: Severity,
    /// A bucket, an entry of the policy, an aggregator as `ZONE/NAME` or a tenant; else `fleet`, `policy`, `quotas` or
    /// `controller`.
    pub subject: String,
    /// One sentence.
    pub text: String,
    /// The operator, if a person did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reasons, if they are not part of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How urgently an operator wants to know of an event or a problem.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Everything works as it should.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Limits are not kept, too much is refused, or the next fault does harm.
    Critical,
}

/// The kind of an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum EventKind {
    PolicyInForce,
    PolicyHeld,
    PolicyReleased,
    PolicyUndone,
    PolicyRefused,
    KillOn,
    KillOff,
    Promoted,
    Aborted,
    Breached,
    ReturnedStale,
    ModeEdited,
    ModeRecovered,
    EvidenceRenewed,
    AggregatorJoined,
    AggregatorLeft,
    AggregatorLost,
    AggregatorStale,
    AggregatorExpired,
    AggregatorReturned,
    AggregatorForgotten,
    AggregatorNameConflict,
    AggregatorNameSettled,
    ControllerStarted,
    ControllerStopped,
    LeadTaken,
    LeadUnconfirmed,
    LeadConfirmed,
    LeadHandedOver,
    LeadLost,
    LimitMoved,
    BoostBegan,
    BoostEnded,
    QuotaReset,
    QuotaStoreLost,
    QuotaStoreReturned,
    CertificateExpiring,
    CertificateRefused,
    CertificateUntrusted,
    TokensRefused,
    TrustRestored,
    StateLost,
    StateLossAcknowledged,
    StateUnsaved,
    StateSaved,
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

// === impl Event ===

impl Event {
    /// An event that is not numbered yet.
    pub(crate) fn new(kind: EventKind, subject: impl fmt::Display, text: impl ToString) -> Self {
        Self {
            number: 0,
            time_ms: 0,
            kind,
            severity: kind.severity(),
            subject: cut(subject.to_string(), TEXT_BYTES_MAX),
            text: cut(text.to_string(), TEXT_BYTES_MAX),
            by: None,
            why: None,
        }
    }

    pub(crate) fn by(mut self, who: impl ToString) -> Self {
        self.by = Some(cut(who.to_string(), TEXT_BYTES_MAX));
        self
    }

    pub(crate) fn why(mut self, why: impl ToString) -> Self {
        self.why = Some(cut(why.to_string(), TEXT_BYTES_MAX)).filter(|why| !why.is_empty());
        self
    }
}

impl fmt::Display for Event {
    /// The sentence, then who did it and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, by, why, .. } = self;
        match (by, why) {
            (None, None) => f.write_str(text),
            (Some(by), None) => write!(f, "{text} (by {by})"),
            (None, Some(why)) => write!(f, "{text} ({why})"),
            (Some(by), Some(why)) => write!(f, "{text} (by {by}: {why})"),
        }
    }
}

// === impl Severity ===

impl Severity {
    /// The name as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

// === impl EventKind ===

impl EventKind {
    const fn severity(self) -> Severity {
        match self {
            Self::KillOn
            | Self::AggregatorExpired
            | Self::AggregatorNameConflict
            | Self::LeadUnconfirmed
            | Self::LeadLost
            | Self::CertificateUntrusted
            | Self::StateLost
            | Self::StateUnsaved => Severity::Critical,
            Self::PolicyHeld
            | Self::PolicyRefused
            | Self::KillOff
            | Self::Aborted
            | Self::Breached
            | Self::ReturnedStale
            | Self::ModeRecovered
            | Self::AggregatorLost
            | Self::AggregatorStale
            | Self::AggregatorForgotten
            | Self::LeadTaken
            | Self::LeadHandedOver
            | Self::CertificateExpiring
            | Self::CertificateRefused
            | Self::TokensRefused
            | Self::QuotaStoreLost => Severity::Warning,
            _ => Severity::Info,
        }
    }
}
