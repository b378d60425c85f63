//! The reasons why a limiter cannot be built, each with the method of the builder that fixes it.

#[cfg(feature = "tls")]
use plimsoll_core::exchange::{InvalidPeerId, PeerId};
use plimsoll_core::names::InvalidName;
use plimsoll_core::quantity::InvalidRate;

use crate::setup::readable_debug;

readable_debug!(BuildError);

/// The reason why a limiter cannot be built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name breaks the rule of names.
    #[error("{what} `{name}`: {source}")]
    Name {
        /// The kind of thing that was to be named.
        what: &'static str,
        /// The name as it was given.
        name: String,
        /// The rule that the name breaks.
        source: InvalidName,
    },
    /// An environment variable has an invalid value, or must not be set.
    #[error("environment variable {name}=`{value}`: {cause}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value, or the beginning of a long one.
        value: String,
        /// The rule that the value breaks.
        cause: String,
    },
    /// The list of aggregators is empty.
    #[error(
        "LimiterBuilder::aggregators was given an empty list: give it the addresses of the zone's aggregators, or leave the \
         call out for a limiter without a control plane"
    )]
    NoAggregators,
    /// An aggregator's address is malformed.
    #[error(
        "invalid aggregator address `{address}`: give LimiterBuilder::aggregators https://HOST:PORT or http://HOST:PORT for \
         each aggregator, all with one scheme, or dns://HOST:PORT alone"
    )]
    Address {
        /// The first address that is malformed, or unlike those before it.
        address: String,
    },
    /// An aggregator is to be reached over TLS without certificates.
    #[error(
        "the aggregator address `{address}` asks for mutual TLS: give the directory of this service's certificates \
         by LimiterBuilder::certificates or PLIMSOLL_CERTS"
    )]
    CertificatesNeeded {
        /// The address, in lower case.
        address: String,
    },
    /// An aggregator beyond loopback would be reached in plaintext.
    #[error(
        "the aggregator `{address}` would be reached in plaintext: for mutual TLS write https:// or dns:// and give the \
         directory of this service's certificates by LimiterBuilder::certificates or PLIMSOLL_CERTS, or allow plaintext by \
         LimiterBuilder::insecure or PLIMSOLL_INSECURE=true"
    )]
    Plaintext {
        /// The address, in lower case.
        address: String,
    },
    /// An aggregator is to be reached over TLS, and the library was built without it.
    #[error(
        "the aggregator address `{address}` asks for mutual TLS: build plimsoll-client with its feature `tls`, and give \
         the directory of this service's certificates by LimiterBuilder::certificates or PLIMSOLL_CERTS"
    )]
    WithoutTls {
        /// The address, in lower case.
        address: String,
    },
    /// The certificates cannot be read, or do not fit together.
    #[cfg(feature = "tls")]
    #[error("LimiterBuilder::certificates: {0}")]
    Certificates(#[from] plimsoll_tls::CertificatesError),
    /// The certificate is that of another service or another role.
    #[cfg(feature = "tls")]
    #[error(
        "the certificate given to LimiterBuilder::certificates is that of {certificate}, but this limiter is {limiter}: give \
         it the directory of its own certificate, or correct Limiter::builder(service) and LimiterBuilder::zone"
    )]
    WrongCertificate {
        /// The identity in the certificate.
        certificate: Box<PeerId>,
        /// The identity that the certificate must have.
        limiter: Box<PeerId>,
    },
    /// No certificate can name the limiter's zone and service.
    #[cfg(feature = "tls")]
    #[error(
        "no certificate can name this limiter: {0}; change Limiter::builder(service) or LimiterBuilder::zone"
    )]
    NoIdentity(#[from] InvalidPeerId),
    /// The store of exact quotas cannot be used.
    #[cfg(feature = "quota")]
    #[error("LimiterBuilder::quota_store: {0}")]
    QuotaStore(#[from] crate::QuotaStoreError),
    /// A rate is negative or not finite.
    #[error("cold_rps: {0}")]
    Rate(#[from] InvalidRate),
    /// The feed cannot run.
    #[error(transparent)]
    Feed(#[from] crate::FeedError),
    /// The operating system provided no random seed.
    #[error("cannot seed the random generator: {0}")]
    Entropy(#[from] getrandom::Error),
}

pub(super) fn named<N>(
    what: &'static str,
    name: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, BuildError> {
    new(name).map_err(|source| BuildError::Name {
        what,
        name: name.to_owned(),
        source,
    })
}
