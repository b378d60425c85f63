//! The protection of a limiter's streams: mutual TLS with a service's certificate, or plaintext where it is allowed.

#[cfg(feature = "tls")]
use std::path::Path;

#[cfg(feature = "tls")]
use plimsoll_core::exchange::PeerRole;
use plimsoll_proto::transport::{InvalidEndpoint, Security};
#[cfg(feature = "tls")]
use plimsoll_tls::{Certificates, RoleError};

use super::{BuildError, LimiterBuilder};
use crate::feed::cache::Owner;
use crate::feed::dial;
use crate::subscription::assignment::endpoints::Scheme;

impl LimiterBuilder {
    /// Opens the certificates if the addresses need them, and checks that every address may be reached.
    pub(super) fn security(&self, owner: &Owner) -> Result<Security, BuildError> {
        let security = self.open(owner)?;
        let loopback_only = Security::Plain { anywhere: false };
        for name in self.addresses.aggregators.names() {
            let address = || self.addresses.written(name);
            dial(name, &security).map_err(|error| match error {
                InvalidEndpoint::Plaintext { .. } => BuildError::Plaintext { address: address() },
                _ => BuildError::Address { address: address() },
            })?;
            if matches!(security, Security::Plain { .. }) && dial(name, &loopback_only).is_err() {
                let address = address();
                tracing::warn!(
                    address,
                    "plaintext to an aggregator beyond loopback, as LimiterBuilder::insecure allows: others on the way can \
                     read and change reports and directives"
                );
            }
        }
        Ok(security)
    }

    #[cfg(feature = "tls")]
    fn open(&self, owner: &Owner) -> Result<Security, BuildError> {
        Ok(match (self.addresses.scheme, &self.certificates) {
            (Scheme::Https | Scheme::Dns, Some(directory)) => {
                Security::Mutual(certificates_of(directory, owner)?)
            }
            (Scheme::Https, None) => {
                return Err(BuildError::CertificatesNeeded {
                    address: self.addresses.first(),
                });
            }
            (Scheme::Http | Scheme::Dns, unused) => {
                if let Some(directory) = unused
                    && !self.addresses.aggregators.names().is_empty()
                {
                    tracing::warn!(
                        certificates = %directory.display(),
                        address = self.addresses.first(),
                        "certificates are not used for plaintext: write https:// in PLIMSOLL_AGGREGATOR or \
                         LimiterBuilder::aggregators"
                    );
                }
                Security::Plain {
                    anywhere: self.is_insecure,
                }
            }
        })
    }

    #[cfg(not(feature = "tls"))]
    fn open(&self, _: &Owner) -> Result<Security, BuildError> {
        match self.addresses.scheme {
            Scheme::Https => Err(BuildError::WithoutTls {
                address: self.addresses.first(),
            }),
            Scheme::Http | Scheme::Dns => Ok(Security::Plain {
                anywhere: self.is_insecure,
            }),
        }
    }
}

/// Opens a directory. The certificate must name this limiter's zone and service.
#[cfg(feature = "tls")]
fn certificates_of(directory: &Path, owner: &Owner) -> Result<Certificates, BuildError> {
    let certificates = Certificates::open(directory)?;
    let role = PeerRole::Service {
        zone: owner.zone.clone(),
        service: owner.service.clone(),
    };
    match certificates.check_role(role) {
        Ok(()) => Ok(certificates),
        Err(RoleError::Invalid(error)) => Err(error.into()),
        Err(RoleError::Other {
            certificate,
            expected: limiter,
        }) => Err(BuildError::WrongCertificate {
            certificate,
            limiter,
        }),
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use crate::{BuildError, Limiter};

    fn built(addresses: &[&str], is_insecure: bool) -> Result<(), BuildError> {
        let builder = Limiter::builder("shop").aggregators(addresses);
        let builder = if is_insecure {
            builder.insecure()
        } else {
            builder
        };
        builder.build_detached().map(|_| ())
    }

    #[test]
    fn plaintext_beyond_loopback_needs_permission() {
        for address in [
            "http://127.0.0.1:7410",
            "http://[::1]:7410",
            "http://localhost:7410",
            "dns://localhost:7410",
        ] {
            built(&[address], false).unwrap();
        }
        for address in [
            "http://10.0.0.1:7410",
            "http://aggregator:7410",
            "dns://aggregators:7410",
        ] {
            let error = built(&[address], false).unwrap_err();
            assert!(
                matches!(&error, BuildError::Plaintext { address: given } if given == address),
                "{error}"
            );
            let text = error.to_string();
            for word in [
                address,
                "LimiterBuilder::certificates",
                "LimiterBuilder::insecure",
            ] {
                assert!(text.contains(word), "{text}");
            }
            built(&[address], true).unwrap();
        }
        let error = built(&["http://127.0.0.1:7410", "http://10.0.0.1:7410"], false).unwrap_err();
        assert!(
            error.to_string().contains("http://10.0.0.1:7410"),
            "{error}"
        );
    }

    #[test]
    fn secure_address_is_never_reached_in_plaintext() {
        for is_insecure in [false, true] {
            let error = built(&["https://127.0.0.1:7410"], is_insecure)
                .unwrap_err()
                .to_string();
            assert!(error.contains("`https://127.0.0.1:7410`"), "{error}");
            assert!(error.contains("LimiterBuilder::certificates"), "{error}");
        }
    }

    #[test]
    fn malformed_address_error_lists_allowed_forms() {
        for bad in [
            &["a:7410"][..],
            &["https://a"],
            &["https://a:1", "http://b:1"],
            &["dns://a:1", "dns://b:1"],
        ] {
            let error = built(bad, true).unwrap_err();
            let BuildError::Address { address } = &error else {
                panic!("{error}")
            };
            assert!(
                bad.contains(&address.as_str()) && error.to_string().contains("https://HOST:PORT"),
                "{error}"
            );
        }
    }
}
