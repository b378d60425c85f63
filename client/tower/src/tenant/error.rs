//! The reasons why a source of tenants is rejected, each with the remedy.

use std::fmt;

use plimsoll_client::internals::write_readable;

use super::forwarded::TRUSTED_HOPS_MAX;

impl fmt::Debug for TenantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_readable(self, f)
    }
}

/// The reason why a source of tenants is rejected.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// A header's name is invalid.
    #[error("`{0}` is no name of a header: use letters, digits and `-`, such as `x-tenant`")]
    Header(String),
    /// A tenant is empty.
    #[error("a tenant is empty: name it, or use Tenant::default() for the class `default`")]
    Empty,
    /// The header is `forwarded`, which is not read.
    #[error(
        "addresses in `forwarded` are not read: let the proxy append to `x-forwarded-for`, and name that header"
    )]
    Forwarded,
    /// The number of trusted proxies is out of range.
    #[error(
        "{0} trusted hops: name the number of proxies in front of the service, 1 to {TRUSTED_HOPS_MAX}; without a proxy use \
         Tenant::peer_address"
    )]
    Hops(usize),
}
