//! The certificates of the demo service, with the same flags as the tiers'.

use std::path::PathBuf;

use clap::ValueHint;
use plimsoll_client::{Feed, Limiter, LimiterBuilder};
use plimsoll_sidecar::trust_in_flags;

use crate::cmd::unusable;

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
    pub(crate) fn build(&self, mut builder: LimiterBuilder) -> anyhow::Result<(Limiter, Feed)> {
        if let Some(directory) = &self.certs {
            builder = builder.certificates(directory);
        }
        if self.insecure {
            builder = builder.insecure();
        }
        builder
            .build_detached()
            .map_err(|error| match trust_in_flags(&error, "--zone") {
                Some(text) => unusable(text),
                None => error.into(),
            })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use plimsoll_core::exchange::PeerRole;
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_tls::testing::{Authority, Validity};

    use super::super::Args;
    use super::*;
    use crate::cmd::Unusable;

    #[derive(Parser)]
    struct Service {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(flags: &[&str]) -> Args {
        Service::try_parse_from([&["service"], flags].concat())
            .unwrap()
            .args
    }

    fn built(address: &str, flags: &[&str]) -> anyhow::Result<()> {
        let builder = Limiter::builder("demo").aggregator(address);
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
            assert!(error.is::<Unusable>(), "{error:?}");
            let text = format!("{error:#}");
            assert!(
                ["--certs", "--insecure", address]
                    .iter()
                    .all(|word| text.contains(word)),
                "{text}"
            );
            assert!(!text.contains("LimiterBuilder"), "{text}");
        }
        built("http://192.0.2.1:7410", &["--insecure"]).unwrap();
        built("http://127.0.0.1:7410", &[]).unwrap();
    }

    #[test]
    fn misfit_certificates_are_named_by_flag() {
        let directory = tempfile::tempdir().unwrap();
        let certs = directory.path().display().to_string();
        let refused =
            |flags: &[&str]| format!("{:#}", built("https://127.0.0.1:7410", flags).unwrap_err());
        let text = refused(&["--certs", &certs]);
        assert!(
            text.starts_with("--certs: ") && text.contains("tls.crt"),
            "{text}"
        );
        let role = PeerRole::Service {
            zone: Zone::new("a").unwrap(),
            service: Name::new("demo").unwrap(),
        };
        Authority::new("test.example").write(directory.path(), role, Validity::default());
        let text = refused(&["--certs", &certs]);
        let words = [
            "--certs",
            "zone/a/service/demo",
            "zone/default/service/demo",
            "--zone",
        ];
        assert!(
            words.iter().all(|word| text.contains(word)) && !text.contains("LimiterBuilder"),
            "{text}"
        );
    }
}
