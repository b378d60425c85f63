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
                "give the service --certs DIR, made by `plimsoll certs`, or --insecure and an address http://HOST:PORT",
            );
        }
        Ok(built?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Args;
    use super::*;

    #[derive(Parser)]
    struct Service {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(flags: &[&str]) -> Args {
        Service::try_parse_from([&["service"], flags].concat()).unwrap().args
    }

    fn built(address: &str, flags: &[&str]) -> anyhow::Result<()> {
        let builder = Limiter::builder("demo")?.aggregator(address)?;
        parsed(flags).trust.build(builder).map(|_| ())
    }

    #[test]
    fn plaintext_beyond_loopback_needs_the_flag() {
        for (address, flags) in [
            ("http://192.0.2.1:7410", &[][..]),
            ("https://127.0.0.1:7410", &[]),
            ("https://127.0.0.1:7410", &["--insecure"]),
        ] {
            let error = built(address, flags).unwrap_err();
            assert!(error.is::<BuildError>(), "{error:?}");
            let text = format!("{error:#}");
            assert!(["--certs", "--insecure", address].iter().all(|word| text.contains(word)), "{text}");
        }
        built("http://192.0.2.1:7410", &["--insecure"]).unwrap();
        built("http://127.0.0.1:7410", &[]).unwrap();
    }

    #[test]
    fn certificates_make_tls_the_default() {
        assert_eq!(parsed(&[]).aggregator, ["http://127.0.0.1:7410"]);
        assert_eq!(parsed(&["--certs", "a"]).aggregator, ["https://127.0.0.1:7410"]);
        let given = parsed(&["--certs", "a", "--aggregator", "https://b:1,https://c:1"]);
        assert_eq!(given.aggregator, ["https://b:1", "https://c:1"]);
    }
}
