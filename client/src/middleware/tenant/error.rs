//! The reasons why a source of tenants is rejected, each with the remedy.

use super::api_keys::{API_KEY_BYTES_MAX, API_KEYS_MAX};
use super::forwarded::TRUSTED_HOPS_MAX;
use crate::setup::readable_debug;

readable_debug!(TenantError);

/// The reason why a source of tenants is rejected. Texts have no key.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// A header's name is invalid.
    #[error("`{0}` is no name of a header: use letters, digits and `-`, such as `x-tenant`")]
    Header(String),
    /// A tenant is empty.
    #[error("a tenant is empty: name it, or use Tenant::default() for the class `default`")]
    Empty,
    /// An API key of this tenant is empty or too long.
    #[error(
        "an API key of tenant `{0}` is empty or longer than {API_KEY_BYTES_MAX} bytes: correct or remove it"
    )]
    KeyLength(String),
    /// An API key belongs to two tenants.
    #[error("tenants `{one}` and `{other}` have the same API key: give one of them another")]
    SharedKey {
        /// The first tenant.
        one: String,
        /// The other tenant.
        other: String,
    },
    /// There are more API keys than a limiter holds.
    #[error(
        "there are more than {API_KEYS_MAX} API keys: look them up with Tenant::by or ResolveTenantLayer"
    )]
    TooManyKeys,
    /// The system gave no random bytes for the hashes of API keys.
    #[error("the system gives no random bytes to hash API keys with: {0}")]
    Entropy(String),
    /// The number of trusted proxies is out of range.
    #[error(
        "{0} trusted hops: name the number of proxies in front of the service, 1 to {TRUSTED_HOPS_MAX}; without a proxy use \
         Tenant::peer_address"
    )]
    Hops(usize),
}
