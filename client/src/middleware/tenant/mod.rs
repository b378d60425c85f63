//! The tenant of a request.

mod address;
mod error;
mod forwarded;
mod found;

pub use error::TenantError;

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use plimsoll_core::names::DEFAULT_TENANT;

use super::Head;
use address::PeerAddress;
use forwarded::ForwardedAddress;
use found::{Find, Found, NameBuffer};

/// The source of a request's tenant: any text, whose [`Encoded`](plimsoll_core::names::Encoded) name is that of policies,
/// metrics and quotas, such as `auth0%7C1a` for `auth0|1a`. A request without a tenant counts as the class `default`; so
/// does every request of `Tenant::default()`.
///
/// | source | trust |
/// |---|---|
/// | [`extension`](Self::extension) | as much as the layer that verified it |
/// | [`peer_address`](Self::peer_address), [`forwarded_address`](Self::forwarded_address) | an address, which many callers may share |
/// | [`header`](Self::header) | anything that a caller sends, unless a proxy replaces it |
///
/// [`or`](Self::or) puts sources in order. None allocates for texts of up to
/// 128 bytes, except what a function of [`by`](Self::by) allocates.
#[derive(Clone, Default)]
#[must_use = "a source of tenants does nothing until `Rules` have it"]
pub struct Tenant(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Default,
    Header(HeaderName),
    Constant(Arc<str>),
    Fn(Arc<Read>),
    Find(Arc<dyn Find>),
}

type Read = dyn Fn(Head<'_>) -> Option<&str> + Send + Sync;

impl Tenant {
    /// Reads the tenant from a value of type `T` that a layer before this one put into the request's
    /// extensions, such as the claims of a verified token, or the result of a look-up that
    /// was awaited. A request without it counts as `default`.
    ///
    /// ```
    /// # use plimsoll_client::middleware::Tenant;
    /// #[derive(Clone)]
    /// struct Claims { account: String }
    /// let tenant = Tenant::extension(|claims: &Claims| Some(&claims.account));
    /// # drop(tenant);
    /// ```
    pub fn extension<T: Send + Sync + 'static>(
        read: impl Fn(&T) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        Self::from_fn(move |request| request.extensions.get::<T>().and_then(&read))
    }

    /// Reads the tenant from a header. A request without it, with several, or with a value that is not UTF-8
    /// counts as `default`.
    ///
    /// Callers can send any header: one that names a large tenant takes that tenant's share, and one that
    /// invents names takes from the class `default`. So let an authenticating proxy at the edge replace it, or
    /// use [`extension`](Self::extension).
    ///
    /// # Errors
    /// When the header's name is invalid.
    pub fn header(name: &str) -> Result<Self, TenantError> {
        header_name(name).map(Self::from)
    }

    /// Uses one tenant for every request.
    ///
    /// # Errors
    /// When the tenant is empty.
    pub fn constant(tenant: &str) -> Result<Self, TenantError> {
        check(tenant).map(|()| Self(Source::Constant(tenant.into())))
    }

    /// Reads the tenant by a function of the request's head that borrows from it, such as the route of an axum router in
    /// `MatchedPath`.
    ///
    /// ```
    /// # use plimsoll_client::middleware::Tenant;
    /// let tenant = Tenant::from_fn(|request| request.uri.host());
    /// # drop(tenant);
    /// ```
    pub fn from_fn(read: impl Fn(Head<'_>) -> Option<&str> + Send + Sync + 'static) -> Self {
        Self(Source::Fn(Arc::new(read)))
    }

    /// Finds the tenant by a function that returns an own name, such as one that is looked up in a map of API keys.
    ///
    /// ```
    /// use std::{collections::HashMap, sync::Arc};
    /// # use plimsoll_client::middleware::{Head, Tenant};
    /// let accounts: HashMap<String, Arc<str>> = HashMap::from([("7".to_owned(), "acme".into())]);
    /// let tenant = Tenant::by(move |request: Head<'_>| accounts.get(request.header("x-account")?).cloned());
    /// # drop(tenant);
    /// ```
    pub fn by<N: AsRef<str> + 'static>(find: impl Fn(Head<'_>) -> Option<N> + Send + Sync + 'static) -> Self {
        Self::find(By(find))
    }

    /// Uses the address of the connection's peer: an IPv4 address, or the /64 of an IPv6 address, as
    /// `2001:db8:1:2::/64`. It is a `SocketAddr` or `IpAddr` in the request's extensions; with the feature `axum` also
    /// what `into_make_service_with_connect_info::<SocketAddr>` puts there. Behind a proxy the peer is the proxy: use
    /// [`forwarded_address`](Self::forwarded_address).
    pub fn peer_address() -> Self {
        Self::find(PeerAddress)
    }

    /// Uses the address that trusted proxies name in `forwarded` (RFC 7239), `x-forwarded-for` or a header like it.
    /// `trusted_hops` is the number of proxies in front of the service that append to the header: with 1 the last entry
    /// counts, with 2 the one before it. A request with fewer entries, or with no address at that place, counts as
    /// `default`.
    ///
    /// Entries further to the left are those that the caller sent. So a number that is too large lets callers choose
    /// their address, and each proxy must be one that requests cannot avoid.
    ///
    /// ```
    /// # use plimsoll_client::middleware::{Tenant, TenantError};
    /// # fn main() -> Result<(), TenantError> {
    /// let tenant = Tenant::forwarded_address("x-forwarded-for", 1)?;
    /// # drop(tenant);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the header's name is invalid, or the number of hops is not 1 to 16.
    pub fn forwarded_address(header: &str, trusted_hops: usize) -> Result<Self, TenantError> {
        ForwardedAddress::new(header_name(header)?, trusted_hops).map(Self::find)
    }

    /// Uses another source for the requests without a tenant in this one.
    ///
    /// ```
    /// # use plimsoll_client::middleware::{Tenant, TenantError};
    /// # #[derive(Clone)] struct Claims { account: String }
    /// # fn main() -> Result<(), TenantError> {
    /// let tenant = Tenant::extension(|claims: &Claims| Some(&claims.account))
    ///     .or(Tenant::forwarded_address("x-forwarded-for", 1)?);
    /// # drop(tenant);
    /// # Ok(()) }
    /// ```
    pub fn or(self, other: Self) -> Self {
        Self::find(Or(self.0, other.0))
    }

    fn find(find: impl Find + 'static) -> Self {
        Self(Source::Find(Arc::new(find)))
    }

    /// Returns the tenant of all requests, if they have the same one.
    pub(super) fn constant_name(&self) -> Option<&str> {
        match &self.0 {
            Source::Default => Some(DEFAULT_TENANT),
            Source::Constant(tenant) => Some(tenant),
            Source::Header(_) | Source::Fn(_) | Source::Find(_) => None,
        }
    }

    /// Calls `f` with the tenant of a request.
    #[inline]
    pub(super) fn with<T>(&self, request: Head<'_>, f: impl FnOnce(&str) -> T) -> T {
        if let Source::Find(find) = &self.0 {
            let mut buffer = NameBuffer::new();
            let found = find.find(request, &mut buffer);
            return f(found.map_or(DEFAULT_TENANT, |found| found.of(&buffer)));
        }
        f(self.0.borrowed(request).unwrap_or(DEFAULT_TENANT))
    }
}

impl Source {
    /// Returns the name of a source that borrows from the request.
    #[inline]
    fn borrowed<'a>(&'a self, request: Head<'a>) -> Option<&'a str> {
        match self {
            Self::Default | Self::Find(_) => None,
            Self::Header(name) => request.header(name),
            Self::Constant(tenant) => Some(tenant),
            Self::Fn(read) => read(request),
        }
    }
}

impl Find for Source {
    fn find<'a>(&'a self, request: Head<'a>, buffer: &mut NameBuffer) -> Option<Found<'a>> {
        match self {
            Self::Find(find) => find.find(request, buffer),
            _ => self.borrowed(request).map(Found::Borrowed),
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_TENANT),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Constant(tenant) => fmt::Debug::fmt(tenant, f),
            Self::Fn(_) => f.write_str("function"),
            Self::Find(find) => find.describe(f),
        }
    }
}

/// A function that returns an own name.
struct By<F>(F);

impl<F, N> Find for By<F>
where
    F: Fn(Head<'_>) -> Option<N> + Send + Sync,
    N: AsRef<str>,
{
    fn find<'a>(&'a self, request: Head<'a>, buffer: &mut NameBuffer) -> Option<Found<'a>> {
        buffer.put(format_args!("{}", (self.0)(request)?.as_ref()))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("function")
    }
}

/// A source, and the one for requests without a tenant in it.
struct Or(Source, Source);

impl Find for Or {
    fn find<'a>(&'a self, request: Head<'a>, buffer: &mut NameBuffer) -> Option<Found<'a>> {
        match self.0.find(request, buffer) {
            Some(found) if !found.of(buffer).is_empty() => Some(found),
            _ => self.1.find(request, buffer),
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)?;
        f.write_str(" or ")?;
        self.1.describe(f)
    }
}

/// Checks a tenant that the service names.
fn check(tenant: &str) -> Result<(), TenantError> {
    if tenant.is_empty() { Err(TenantError::Empty) } else { Ok(()) }
}

fn header_name(name: &str) -> Result<HeaderName, TenantError> {
    HeaderName::try_from(name).map_err(|_| TenantError::Header(name.to_owned()))
}

impl From<HeaderName> for Tenant {
    fn from(name: HeaderName) -> Self {
        Self(Source::Header(name))
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tenant(")?;
        self.0.describe(f)?;
        f.write_str(")")
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
