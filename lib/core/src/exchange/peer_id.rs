//! The identity of a process in its certificate, in SPIFFE's form, so that certificates of cert-manager, SPIRE or
//! `plimsoll certs` say the same.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::names::{InvalidName, Name, Zone};

const SCHEME: &str = "spiffe://";
/// The longest trust domain in bytes, by the specification of SPIFFE.
const TRUST_DOMAIN_BYTES_MAX: usize = 255;

/// The identity of a controller, an aggregator, a service or a quota server:
/// `spiffe://TRUST-DOMAIN/plimsoll/controller`, `spiffe://TRUST-DOMAIN/plimsoll/zone/ZONE/aggregator`,
/// `spiffe://TRUST-DOMAIN/plimsoll/zone/ZONE/service/SERVICE` or `spiffe://TRUST-DOMAIN/plimsoll/quota`. One identity
/// has one spelling.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    trust_domain: Arc<str>,
    role: PeerRole,
}

/// The part of an identity that decides about permissions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// A controller.
    Controller,
    /// An aggregator of a zone.
    Aggregator {
        /// Its zone.
        zone: Zone,
    },
    /// The instances of a service in a zone.
    Service {
        /// Their zone.
        zone: Zone,
        /// The name of the service.
        service: Name,
    },
    /// A quota server, which has no stream to others.
    Quota,
}

/// The rule of identities that a text or a name breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPeerId {
    /// The scheme is another one.
    #[error("an identity begins with {SCHEME}")]
    Scheme,
    /// The trust domain is empty, too long or has other characters.
    #[error(
        "a trust domain has 1 to {TRUST_DOMAIN_BYTES_MAX} lower-case letters, digits and . _ -"
    )]
    TrustDomain,
    /// The path is none of the four.
    #[error(
        "the path of an identity is /plimsoll/controller, /plimsoll/zone/ZONE/aggregator, \
         /plimsoll/zone/ZONE/service/SERVICE or /plimsoll/quota"
    )]
    Path,
    /// The zone or service is not a name.
    #[error("the zone or service of an identity: {0}")]
    Name(#[from] InvalidName),
    /// The zone or service is a name that a path of SPIFFE cannot contain.
    #[error(
        "{0:?} cannot be in a certificate: its identity allows letters, digits and . _ - in a zone or service, and \
         neither . nor .. alone; rename it"
    )]
    Segment(String),
}

impl PeerId {
    /// Combines a trust domain, such as `plimsoll.example`, and a role.
    ///
    /// # Errors
    /// If the trust domain, the zone or the service cannot be in an identity.
    pub fn new(trust_domain: &str, role: PeerRole) -> Result<Self, InvalidPeerId> {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if !(1..=TRUST_DOMAIN_BYTES_MAX).contains(&trust_domain.len())
            || !trust_domain.bytes().all(is_allowed)
        {
            return Err(InvalidPeerId::TrustDomain);
        }
        match &role {
            PeerRole::Controller | PeerRole::Quota => {}
            PeerRole::Aggregator { zone } => check_segment(zone.as_str())?,
            PeerRole::Service { zone, service } => {
                check_segment(zone.as_str())?;
                check_segment(service.as_str())?;
            }
        }
        Ok(Self {
            trust_domain: trust_domain.into(),
            role,
        })
    }

    /// Returns the trust domain: the authority that all processes of one fleet share.
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// Returns the role, with zone and service.
    pub const fn role(&self) -> &PeerRole {
        &self.role
    }
}

/// A path of SPIFFE has fewer characters than a name, and no relative segments.
fn check_segment(name: &str) -> Result<(), InvalidPeerId> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.bytes().all(is_allowed) && !matches!(name, "." | "..") {
        Ok(())
    } else {
        Err(InvalidPeerId::Segment(name.to_owned()))
    }
}

impl FromStr for PeerId {
    type Err = InvalidPeerId;

    fn from_str(uri: &str) -> Result<Self, InvalidPeerId> {
        let (trust_domain, path) = uri
            .strip_prefix(SCHEME)
            .ok_or(InvalidPeerId::Scheme)?
            .split_once('/')
            .ok_or(InvalidPeerId::Path)?;
        // One segment more than the longest path has, so that the rest of a hostile text is not split.
        let mut segments = path.splitn(6, '/');
        let mut next = || segments.next();
        let role = match (next(), next(), next(), next(), next(), next()) {
            (Some("plimsoll"), Some("controller"), None, None, None, None) => PeerRole::Controller,
            (Some("plimsoll"), Some("quota"), None, None, None, None) => PeerRole::Quota,
            (Some("plimsoll"), Some("zone"), Some(zone), Some("aggregator"), None, None) => {
                PeerRole::Aggregator {
                    zone: Zone::new(zone)?,
                }
            }
            (Some("plimsoll"), Some("zone"), Some(zone), Some("service"), Some(service), None) => {
                PeerRole::Service {
                    zone: Zone::new(zone)?,
                    service: Name::new(service)?,
                }
            }
            _ => return Err(InvalidPeerId::Path),
        };
        Self::new(trust_domain, role)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/plimsoll/", self.trust_domain)?;
        match &self.role {
            PeerRole::Controller => f.write_str("controller"),
            PeerRole::Aggregator { zone } => write!(f, "zone/{zone}/aggregator"),
            PeerRole::Service { zone, service } => write!(f, "zone/{zone}/service/{service}"),
            PeerRole::Quota => f.write_str("quota"),
        }
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::names::NAME_BYTES_MAX;

    /// The longest identity: two names and a trust domain.
    const URI_BYTES_MAX: usize =
        "spiffe:///plimsoll/zone//service/".len() + TRUST_DOMAIN_BYTES_MAX + 2 * NAME_BYTES_MAX;

    fn zone(zone: &str) -> Zone {
        Zone::new(zone).unwrap()
    }

    fn service(in_zone: &str, service: &str) -> PeerRole {
        PeerRole::Service {
            zone: zone(in_zone),
            service: Name::new(service).unwrap(),
        }
    }

    #[test]
    fn each_role_has_one_spelling() {
        for (uri, trust_domain, role) in [
            (
                "spiffe://example.org/plimsoll/controller",
                "example.org",
                PeerRole::Controller,
            ),
            (
                "spiffe://a/plimsoll/zone/eu-1a/aggregator",
                "a",
                PeerRole::Aggregator {
                    zone: zone("eu-1a"),
                },
            ),
            (
                "spiffe://a_b-9/plimsoll/zone/Z.1/service/cart_API",
                "a_b-9",
                service("Z.1", "cart_API"),
            ),
            // Words of the path are names as well.
            (
                "spiffe://a/plimsoll/zone/zone/service/aggregator",
                "a",
                service("zone", "aggregator"),
            ),
            (
                "spiffe://a/plimsoll/zone/.../service/..a",
                "a",
                service("...", "..a"),
            ),
            ("spiffe://a/plimsoll/quota", "a", PeerRole::Quota),
        ] {
            let id = PeerId::new(trust_domain, role.clone()).unwrap();
            assert_eq!((id.trust_domain(), id.role()), (trust_domain, &role));
            assert_eq!(id.to_string(), uri);
            assert_eq!(format!("{id:?}"), uri);
            assert_eq!(uri.parse(), Ok(id));
        }
    }

    #[test]
    fn other_uris_are_refused() {
        let long = "d".repeat(TRUST_DOMAIN_BYTES_MAX + 1);
        let domain = |domain: &str| format!("spiffe://{domain}/plimsoll/controller");
        let path = |path: &str| format!("spiffe://a{path}");
        let segment = |segment: &str| InvalidPeerId::Segment(segment.to_owned());
        for (uri, error) in [
            (String::new(), InvalidPeerId::Scheme),
            (
                "https://a/plimsoll/controller".to_owned(),
                InvalidPeerId::Scheme,
            ),
            (
                "SPIFFE://a/plimsoll/controller".to_owned(),
                InvalidPeerId::Scheme,
            ),
            (
                " spiffe://a/plimsoll/controller".to_owned(),
                InvalidPeerId::Scheme,
            ),
            (domain(""), InvalidPeerId::TrustDomain),
            (domain(&long), InvalidPeerId::TrustDomain),
            (domain("A"), InvalidPeerId::TrustDomain),
            (domain("a:443"), InvalidPeerId::TrustDomain),
            (domain("user@a"), InvalidPeerId::TrustDomain),
            (domain("%61"), InvalidPeerId::TrustDomain),
            (domain("ä"), InvalidPeerId::TrustDomain),
            (path(""), InvalidPeerId::Path),
            (path("/"), InvalidPeerId::Path),
            (path("/controller"), InvalidPeerId::Path),
            (path("/plimsoll/Controller"), InvalidPeerId::Path),
            (path("/plimsoll/controller/"), InvalidPeerId::Path),
            (path("/plimsoll/controller?a"), InvalidPeerId::Path),
            (path("/plimsoll/controller#a"), InvalidPeerId::Path),
            (path("//plimsoll/controller"), InvalidPeerId::Path),
            (path("/plimsoll/quota/"), InvalidPeerId::Path),
            (path("/plimsoll/quota/1"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z/quota"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z/aggregator/1"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z/service"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z/service/s/1"), InvalidPeerId::Path),
            (path("/plimsoll/zone/z/service/s/"), InvalidPeerId::Path),
            (
                path("/plimsoll/zone//aggregator"),
                InvalidName::Empty.into(),
            ),
            (path("/plimsoll/zone/z/service/"), InvalidName::Empty.into()),
            (
                path("/plimsoll/zone/a b/aggregator"),
                InvalidName::Byte { byte: ' ', at: 1 }.into(),
            ),
            (
                path("/plimsoll/zone/z/service/%2e"),
                InvalidName::Byte { byte: '%', at: 0 }.into(),
            ),
            (path("/plimsoll/zone/./aggregator"), segment(".")),
            (path("/plimsoll/zone/../aggregator"), segment("..")),
            (path("/plimsoll/zone/z/service/a@b"), segment("a@b")),
            (
                path(&format!("/plimsoll/zone/{}/aggregator", "z".repeat(129))),
                InvalidName::TooLong(129).into(),
            ),
        ] {
            assert_eq!(uri.parse::<PeerId>(), Err(error), "{uri}");
        }
    }

    #[test]
    fn unsuitable_names_have_no_identity() {
        for name in ["a:1", "a/b", "a@b", ".", ".."] {
            let error = InvalidPeerId::Segment(name.to_owned());
            let aggregator = PeerRole::Aggregator { zone: zone(name) };
            for role in [aggregator, service(name, "s"), service("z", name)] {
                assert_eq!(
                    PeerId::new("a", role.clone()),
                    Err(error.clone()),
                    "{role:?}"
                );
            }
            assert!(
                error
                    .to_string()
                    .contains(&format!("{name:?} cannot be in a certificate")),
                "{error}"
            );
        }
    }

    fn segment() -> impl Strategy<Value = String> {
        "[A-Za-z0-9._-]{1,128}".prop_filter("relative", |name| name != "." && name != "..")
    }

    fn role() -> impl Strategy<Value = PeerRole> {
        prop_oneof![
            Just(PeerRole::Controller),
            Just(PeerRole::Quota),
            segment().prop_map(|name| PeerRole::Aggregator { zone: zone(&name) }),
            (segment(), segment()).prop_map(|(zone, name)| service(&zone, &name)),
        ]
    }

    proptest! {
        #[test]
        fn identity_text_parses_back(domain in "[a-z0-9._-]{1,255}", role in role()) {
            let id = PeerId::new(&domain, role).unwrap();
            let uri = id.to_string();
            prop_assert!(uri.len() <= URI_BYTES_MAX);
            prop_assert_eq!(uri.parse(), Ok(id));
        }

        #[test]
        fn hostile_identity_text_is_refused_briefly(
            uri in prop_oneof![
                ".{0,400}",
                "spiffe://[a-z/.:@%A-Z]{0,40}",
                "spiffe://a/plimsoll/zone/.{0,300}/(aggregator|service/.{0,300})",
                "spiffe://[a-z]{1,3}/plimsoll/(controller|quota|zone/[a-z/.:]{0,9}/(aggregator|service/[a-z/.@]{0,9}))",
            ],
        ) {
            match uri.parse::<PeerId>() {
                Ok(id) => prop_assert_eq!(id.to_string(), uri),
                Err(error) => prop_assert!(error.to_string().len() <= 3 * NAME_BYTES_MAX, "{}", error),
            }
        }
    }
}
