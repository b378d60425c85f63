//! What can go wrong with a request, and what each answer of etcd says about a change: applied, not
//! applied, or unknown.

use std::error::Error as StdError;
use tonic::{Code, ConnectError, Status};

/// Maximum length of a text from a server, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// Texts of etcd about a token that it no longer takes, or needs.
const INVALID_TOKEN: [&str; 3] = [
    "invalid auth token",
    "revision of auth store is old",
    "user name is empty",
];

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No endpoint answered. A transaction was not applied.
    #[error("no endpoint of the store answered: {causes}")]
    Unreachable {
        /// Each endpoint that was tried, and why it failed.
        causes: String,
    },
    /// A change was sent, and no answer arrived: it may have been applied. Read to find out.
    #[error("it is unknown whether the store applied the change, read it again: {cause}")]
    Unknown {
        /// The endpoint, and how the answer was lost.
        cause: String,
    },
    /// The store refused the user.
    #[error("the store refused access: {cause}")]
    Denied {
        /// What to check.
        cause: String,
    },
    /// The database of the store is full. Deletions and reads still work. The change that fills it is
    /// applied and gets this error as well: read to find out.
    #[error(
        "the database of the store is full, and it refuses writes: compact and defragment it, or raise \
         --quota-backend-bytes, and then run `etcdctl alarm disarm`"
    )]
    NoSpace,
    /// A request or an answer is too large.
    #[error("{what}")]
    TooLarge {
        /// What is too large, and its limit.
        what: String,
    },
    /// The revision that a listing reads was compacted before its last page. List again.
    #[error("the history of the store before revision {revision} is compacted, read it anew")]
    Compacted {
        /// Revision of the listing.
        revision: u64,
    },
    /// The lease has expired or was revoked.
    #[error("the lease does not exist, it has expired or was revoked")]
    LeaseNotFound,
    /// The members that can be reached have no leader. A transaction was not applied.
    #[error("the store has no leader: check that most of its members run and reach each other")]
    NoLeader,
    /// An answer breaks the protocol.
    #[error("the store gave an invalid answer, check that the address is that of etcd: {what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// Any other refusal by the store.
    #[error("the store refused the request ({code}): {message}")]
    Other {
        /// gRPC code.
        code: i32,
        /// Text of the store, cut to 300 characters.
        message: String,
    },
}

/// Outcome of a failed attempt at one endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The token is missing or no longer valid, so nothing was applied. The error is for a request
    /// with a fresh token.
    Token(Error),
    /// Nothing was applied, and another endpoint may answer.
    Unavailable(String),
    /// As `Unavailable`, at a member that is cut off from its cluster.
    NoLeader,
    /// No answer, or one that leaves it open whether the request was applied.
    Unknown(String),
    /// The answer is larger than this client takes. The request was applied.
    Oversized(String),
    /// The error for the caller: no other endpoint is tried.
    Final(Error),
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    pub(crate) fn denied(message: &str) -> Self {
        let message = bounded(message);
        let cause = if message.contains("authentication failed") {
            "the user or the password is wrong".to_owned()
        } else if message.contains("permission denied") {
            "the user's roles lack permission for the prefix of the store's address".to_owned()
        } else if message.contains("user name is empty") {
            "it asks for a user and a password".to_owned()
        } else {
            message
        };
        Self::Denied { cause }
    }
}

impl Failure {
    pub(crate) fn of(status: &Status) -> Self {
        let message = status.message();
        // Texts of etcd differ in what precedes them between versions and methods.
        let says = |text: &str| message.contains(text);
        let refused = |error| Self::Final(error);
        if is_unsent(status) {
            return Self::Unavailable(bounded(message));
        }
        if says("decoded message length too large") {
            return Self::Oversized(bounded(message));
        }
        if says("received message larger than max") {
            let what = format!(
                "the request is too large for the store: {}",
                bounded(message)
            );
            return refused(Error::TooLarge { what });
        }
        // A member passes on some texts of others.
        let text = message.rsplit("desc = ").next().unwrap_or_default();
        if !text.starts_with("etcdserver: ") {
            // Not a word of etcd: the connection broke, or another server answered.
            return match status.code() {
                Code::Unimplemented => refused(Error::invalid(bounded(message))),
                Code::PermissionDenied | Code::Unauthenticated => refused(Error::denied(message)),
                _ => Self::Unknown(cause(status)),
            };
        }
        // In this order: a text counts with any code, and a code of an unknown outcome before the
        // texts that are refusals with every other code.
        match status.code() {
            _ if INVALID_TOKEN.iter().any(|text| says(text)) => Self::Token(Error::denied(message)),
            Code::PermissionDenied => refused(Error::denied(message)),
            _ if says("authentication failed") => refused(Error::denied(message)),
            _ if says("no leader") => Self::NoLeader,
            _ if says("not capable") || says("learner") => Self::Unavailable(bounded(message)),
            Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::DataLoss
            | Code::Cancelled
            | Code::DeadlineExceeded => Self::Unknown(bounded(message)),
            _ if says("database space exceeded") => refused(Error::NoSpace),
            _ if says("request is too large") => refused(Error::TooLarge {
                what: "the request is too large for the store, whose limit is --max-request-bytes"
                    .to_owned(),
            }),
            _ if says("has been compacted") => refused(Error::Compacted { revision: 0 }),
            _ if says("lease not found") => refused(Error::LeaseNotFound),
            code => refused(Error::Other {
                code: code.into(),
                message: bounded(message),
            }),
        }
    }
}

/// Returns true if no connection could be made, so that the request cannot have arrived.
fn is_unsent(status: &Status) -> bool {
    sources(status).any(|error| error.is::<ConnectError>())
}

/// Returns what broke a connection: the message tells the symptom only, the last source the cause.
fn cause(status: &Status) -> String {
    let message = status.message();
    match sources(status).last().map(ToString::to_string) {
        Some(cause) if !message.contains(&cause) => bounded(&format!("{message}: {cause}")),
        _ => bounded(message),
    }
}

fn sources(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(status.source(), |error| (*error).source())
}

/// Returns the begin of a text from a server, without control characters.
pub(crate) fn bounded(text: &str) -> String {
    let shown = text.chars().filter(|letter| !letter.is_control());
    shown.take(TEXT_CHARS_MAX).collect()
}
