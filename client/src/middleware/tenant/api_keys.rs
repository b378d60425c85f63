//! Tenants by API key. Keys are held as keyed hashes: neither memory that is printed nor the time of a look-up, which
//! compares hashes that callers cannot choose, is about the keys.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use siphasher::sip128::SipHasher24;

use super::TenantError;
use super::found::{Find, Found, NameBuffer};
use crate::middleware::Head;

/// The most API keys of a source.
pub(super) const API_KEYS_MAX: usize = 100_000;
/// The longest API key. A longer value of the header is no key, and is not hashed.
pub(super) const API_KEY_BYTES_MAX: usize = 512;

/// The scheme of the header `authorization` that keys follow.
const BEARER: &str = "bearer ";

pub(super) struct ApiKeys {
    header: HeaderName,
    secret: [u8; 16],
    /// By the hash of the key, ascending.
    tenants: Box<[(u128, Arc<str>)]>,
}

impl ApiKeys {
    pub(super) fn new<K: AsRef<str>, T: AsRef<str>>(
        header: HeaderName,
        keys: impl IntoIterator<Item = (K, T)>,
    ) -> Result<Self, TenantError> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| TenantError::Entropy(error.to_string()))?;
        let mut tenants = Vec::new();
        for (key, tenant) in keys {
            let (key, name) = (key.as_ref(), tenant.as_ref());
            super::check(name)?;
            if key.is_empty() || key.len() > API_KEY_BYTES_MAX {
                return Err(TenantError::KeyLength(name.to_owned()));
            }
            if tenants.len() >= API_KEYS_MAX {
                return Err(TenantError::TooManyKeys);
            }
            tenants.push((hash(&secret, key), Arc::from(name)));
        }
        tenants.sort_unstable();
        let same = |pair: &[(u128, Arc<str>)]| match pair {
            [(one_hash, one), (other_hash, other)] if one_hash == other_hash && one != other => {
                Some(TenantError::SharedKey { one: one.to_string(), other: other.to_string() })
            }
            _ => None,
        };
        match tenants.windows(2).find_map(same) {
            Some(error) => Err(error),
            None => Ok(Self { header, secret, tenants: tenants.into() }),
        }
    }
}

fn hash(secret: &[u8; 16], key: &str) -> u128 {
    SipHasher24::new_with_key(secret).hash(key.as_bytes()).as_u128()
}

impl Find for ApiKeys {
    fn find<'a>(&'a self, request: Head<'a>, _: &mut NameBuffer) -> Option<Found<'a>> {
        let mut key = request.header(&self.header)?;
        if self.header == AUTHORIZATION {
            let scheme = key.get(..BEARER.len())?;
            key = scheme.eq_ignore_ascii_case(BEARER).then(|| key[BEARER.len()..].trim_start())?;
        }
        if key.len() > API_KEY_BYTES_MAX {
            return None;
        }
        let hash = hash(&self.secret, key);
        let at = self.tenants.binary_search_by(|(of, _)| of.cmp(&hash)).ok()?;
        self.tenants.get(at).map(|(_, tenant)| Found::Borrowed(tenant))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} API keys in header {}", self.tenants.len(), self.header)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use crate::middleware::Tenant;
    use crate::middleware::tenant::tests::tenant_of;

    #[test]
    fn key_belongs_to_its_tenant() {
        let keys = [("k-1", "acme"), ("k-2", "acme"), ("k-3", "globex"), ("k-3", "globex")];
        let by_key = Tenant::api_key("x-api-key", keys).unwrap();
        let long = "k".repeat(100_000);
        for (values, expected) in [
            (&["k-1"][..], "acme"),
            (&["k-2"], "acme"),
            (&["k-3"], "globex"),
            (&["k-4"], "default"),
            (&["K-1"], "default"),
            (&["k-1 "], "acme"),
            (&["Bearer k-1"], "default"),
            (&[""], "default"),
            (&[&long], "default"),
            (&["k-1", "k-3"], "default"),
            (&[], "default"),
        ] {
            let headers: Vec<_> = values.iter().map(|value| ("x-api-key", value.trim_end())).collect();
            assert_eq!(tenant_of(&by_key, &headers), expected, "{:?}", values.iter().map(|v| v.len()));
        }
    }

    #[test]
    fn key_follows_the_scheme_in_the_header_authorization() {
        let by_key = Tenant::api_key("Authorization", [("k-1", "acme"), ("é", "globex")]).unwrap();
        for (value, expected) in [
            ("Bearer k-1", "acme"),
            ("bearer  k-1", "acme"),
            ("k-1", "default"),
            ("Basic k-1", "default"),
            ("Bearer", "default"),
            ("Bearer ", "default"),
        ] {
            assert_eq!(tenant_of(&by_key, &[("authorization", value)]), expected, "{value}");
        }
    }

    #[test]
    fn keys_are_in_no_text() {
        let by_key = Tenant::api_key("x-api-key", [("k-secret", "acme")]).unwrap();
        assert_eq!(format!("{by_key:?}"), "Tenant(1 API keys in header x-api-key)");
        let secret = "s3cr3t";
        let long = secret.repeat(100);
        for (keys, expected) in [
            (vec![(secret, "acme"), (secret, "globex")], "tenants `acme` and `globex` have the same API key"),
            (vec![(secret, "")], "a tenant is empty"),
            (vec![("", "acme")], "an API key of tenant `acme` is empty or longer than 512 bytes"),
            (vec![(&long, "acme")], "an API key of tenant `acme` is empty or longer than 512 bytes"),
        ] {
            let error = Tenant::api_key("x-api-key", keys).unwrap_err();
            assert!(
                error.to_string().starts_with(expected) && !error.to_string().contains(secret),
                "{error}"
            );
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        let keys = (0..=API_KEYS_MAX).map(|n| (n.to_string(), "acme"));
        assert_eq!(Tenant::api_key("x-api-key", keys).unwrap_err(), TenantError::TooManyKeys);
        assert!(matches!(Tenant::api_key("x y", [("a", "b")]).unwrap_err(), TenantError::Header(_)));
    }
}
