//! The certificates of the demo service, under the flags that the tiers have, too.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueHint;
use plimsoll_client::{BuildError, Feed, Limiter, LimiterBuilder};

/// The protection of the streams to aggregators.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TrustArgs {
    /// Directory with the service's certificate for mutual TLS: tls.crt, tls.key and ca.crt, which are read again
    /// when they change. It names the zone, and the service demo
    #[arg(long, env = "PLIMSOLL_CERTS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    certs: Option<PathBuf>,
    /// Allow plaintext to aggregators that are not on this machine
    #[arg(long, env = "PLIMSOLL_INSECURE")]
    insecure: bool,
}

impl TrustArgs {
    /// Builds the limiter with the certificates.
    pub(crate) fn build(&self, mut builder: LimiterBuilder) -> anyhow::Result<(Limiter, Feed)> {
        if let Some(directory) = &self.certs {
            builder = builder.certificates(directory);
        }
        if self.insecure {
            builder = builder.insecure();
        }
        let built = builder.build();
        let lacks_protection =
            matches!(built, Err(BuildError::Plaintext { .. } | BuildError::CertificatesNeeded { .. }));
        if lacks_protection {
            return built.context(
                "give the service --certs DIR, made by `plimsoll certs`, or --insecure for plaintext",
            );
        }
        Ok(built?)
    }
}
