//! The tenant of a request.

mod address;
mod error;
mod forwarded;

pub use error::TenantError;

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use plimsoll_client::internals::TenantSource;
use plimsoll_core::names::DEFAULT_TENANT;
use smallvec::SmallVec;

use super::Head;
use forwarded::TRUSTED_HOPS_MAX;

/// The source of a request's tenant: any text. Its [`Encoded`](plimsoll_core::names::Encoded) name
/// is the name in policies, metrics and quotas, such as `auth0%7C1a` for `auth0|1a`. A request
/// without a tenant counts as the class `default`; so does every request of `Tenant::default()`.
///
/// | source | trust |
/// |---|---|
/// | [`extension`](Self::extension) | as much as the layer that verified it |
/// | [`peer_address`](Self::peer_address), [`forwarded_address`](Self::forwarded_address) | an address, which many callers may share |
/// | [`header`](Self::header) | anything that a caller sends, unless a proxy replaces it |
///
/// [`or`](Self::or) puts sources in order. None allocates, except a function of [`by`](Self::by), and
/// its text with more than 40 bytes.
#[derive(Clone)]
#[must_use = "a source of tenants does nothing until `Rules` have it"]
pub struct Tenant {
    /// The tenant of all requests, if they have the same one and no plan.
    pub(super) constant: Option<Arc<str>>,
    read: Arc<Read>,
    text: Arc<str>,
    /// The likely causes of a tenant that is never found, and what to do about them.
    remedy: Arc<str>,
    plan: Option<Arc<ReadPlan>>,
}

type ReadPlan = dyn for<'a> Fn(Head<'a>) -> Option<&'a str> + Send + Sync;

type Read = dyn for<'a> Fn(Head<'a>) -> Option<Found<'a>> + Send + Sync;

/// Bytes of an own text on the stack: enough for an address or a UUID. More would be copied with every borrowed text.
const INLINE_BYTES: usize = 40;

/// A text that a source found: borrowed from the request, or its own, on the stack for all but long ones.
pub(crate) enum Found<'a> {
    Borrowed(&'a str),
    Own(SmallVec<[u8; INLINE_BYTES]>),
}

impl Found<'_> {
    fn own(text: &str) -> Self {
        Self::Own(SmallVec::from_slice(text.as_bytes()))
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Own(text) => std::str::from_utf8(text).unwrap_or_default(),
        }
    }
}

impl Tenant {
    /// Reads the tenant from a value of type `T` that a layer before this one put into the request's
    /// extensions, such as the claims of a verified token, or the result of a look-up that
    /// was awaited. A request without it counts as `default`.
    ///
    /// ```
    /// # use plimsoll_tower::Tenant;
    /// #[derive(Clone)]
    /// struct Claims { account: String }
    /// let tenant = Tenant::extension(|claims: &Claims| Some(&claims.account));
    /// # drop(tenant);
    /// ```
    pub fn extension<T: Send + Sync + 'static>(
        read: impl Fn(&T) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        let kind = std::any::type_name::<T>();
        Self::new(format!("extension {kind}"), move |request| {
            let value = request.extensions.get::<T>()?;
            read(value).map(Found::Borrowed)
        })
        .remedy(format!(
            "the layer that puts a `{kind}` into the extensions of requests must be outside of PlimsollLayer, with \
             Router::layer in a later call and with ServiceBuilder in an earlier one, and the function must return a tenant \
             for it"
        ))
    }

    /// Reads the tenant from a header. A request without it, with several, or with a value that is
    /// not UTF-8 counts as `default`.
    ///
    /// Callers can send any header: a caller that names a large tenant takes that tenant's share,
    /// and a caller that invents names takes from the class `default`. So let an authenticating
    /// proxy at the edge replace it, or use [`extension`](Self::extension).
    ///
    /// # Errors
    /// If the header's name is invalid.
    pub fn header(name: &str) -> Result<Self, TenantError> {
        let name = header_name(name)?;
        let shown = name.clone();
        Ok(Self::new(format!("header {name}"), move |request| {
            let found = request.header(&name).map(Found::Borrowed);
            found.or_else(|| invalid(request, &name))
        })
        .remedy(format!(
            "compare the name `{shown}` with the header that the caller or the proxy in front sends, once in a request and \
             as UTF-8"
        )))
    }

    /// Uses one tenant for every request.
    ///
    /// # Errors
    /// If the tenant is empty.
    pub fn constant(tenant: &str) -> Result<Self, TenantError> {
        if tenant.is_empty() {
            Err(TenantError::Empty)
        } else {
            Ok(Self::of_all(tenant))
        }
    }

    /// Reads the tenant by a function of the request's head that borrows from it, such as the route of an axum router
    /// in `MatchedPath`.
    ///
    /// ```
    /// # use plimsoll_tower::Tenant;
    /// let tenant = Tenant::from_fn(|request| request.uri.host());
    /// # drop(tenant);
    /// ```
    pub fn from_fn(read: impl Fn(Head<'_>) -> Option<&str> + Send + Sync + 'static) -> Self {
        Self::new("function", move |request| {
            read(request).map(Found::Borrowed)
        })
    }

    /// Finds the tenant by a function that returns an own name, such as an entry of a map of API
    /// keys.
    ///
    /// ```
    /// use std::{collections::HashMap, sync::Arc};
    /// # use plimsoll_tower::{Head, Tenant};
    /// let accounts: HashMap<String, Arc<str>> = HashMap::from([("7".to_owned(), "acme".into())]);
    /// let tenant = Tenant::by(move |request: Head<'_>| accounts.get(request.header("x-account")?).cloned());
    /// # drop(tenant);
    /// ```
    pub fn by<N: AsRef<str> + 'static>(
        find: impl Fn(Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        Self::new("function", move |request| {
            Some(Found::own(find(request)?.as_ref()))
        })
    }

    /// Uses the address of the connection's peer: an IPv4 address, or the /64 of an IPv6 address, as
    /// `2001:db8:1:2::/64`. It is a `SocketAddr` or `IpAddr` in the request's extensions; with the feature `axum` first
    /// what `into_make_service_with_connect_info::<SocketAddr>` puts there. Behind a proxy the peer is the proxy: use
    /// [`forwarded_address`](Self::forwarded_address).
    pub fn peer_address() -> Self {
        Self::new("peer address", |request| {
            address::name(address::peer(request)?)
        })
        .remedy(
            "serve the router by into_make_service_with_connect_info::<SocketAddr> and with the feature `axum`, or put the \
             peer's SocketAddr into the extensions outside of PlimsollLayer",
        )
    }

    /// Uses the address that trusted proxies name in `x-forwarded-for` or a header like it, but not
    /// in `forwarded`. `trusted_hops` is the number of proxies in front of the service that append
    /// to the header: with 1 the last entry counts, with 2 the one before it. A request with fewer
    /// entries, or with no address at that place, counts as `default`.
    ///
    /// The caller sends the entries further to the left. So a number that is too large lets callers
    /// choose their address, and requests must not be able to avoid a proxy.
    ///
    /// ```
    /// # use plimsoll_tower::{Tenant, TenantError};
    /// # fn main() -> Result<(), TenantError> {
    /// let tenant = Tenant::forwarded_address("x-forwarded-for", 1)?;
    /// # drop(tenant);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the header's name is invalid or `forwarded`, or the number of hops is not 1 to 16.
    pub fn forwarded_address(header: &str, trusted_hops: usize) -> Result<Self, TenantError> {
        let header = header_name(header)?;
        if header == http::header::FORWARDED {
            return Err(TenantError::Forwarded);
        }
        if !(1..=TRUSTED_HOPS_MAX).contains(&trusted_hops) {
            return Err(TenantError::Hops(trusted_hops));
        }
        let text = format!("address {trusted_hops} from the right of header {header}");
        let remedy = format!(
            "the proxies in front must append to `{header}`, and trusted_hops, {trusted_hops}, must be their number"
        );
        Ok(Self::new(text, move |request| {
            let address = forwarded::address(request, &header, trusted_hops);
            address
                .and_then(address::name)
                .or_else(|| invalid(request, &header))
        })
        .remedy(remedy))
    }

    /// Reads the plan of the tenants of this source, for those that the policy does not list. It must be as trustworthy as
    /// the tenant: whoever chooses the plan chooses the limits. A request without one, or with one that the policy does
    /// not have, counts for the class `default`.
    ///
    /// ```
    /// # use plimsoll_tower::{Head, Tenant};
    /// #[derive(Clone)]
    /// struct Claims { account: String, plan: String }
    /// let tenant = Tenant::extension(|claims: &Claims| Some(&claims.account))
    ///     .plan(|head: Head<'_>| Some(&head.extensions.get::<Claims>()?.plan));
    /// # drop(tenant);
    /// ```
    pub fn plan(
        self,
        read: impl for<'a> Fn(Head<'a>) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            // The key of one tenant is found once, and its plan with each request.
            constant: None,
            plan: Some(Arc::new(read)),
            ..self
        }
    }

    /// Uses another source for the requests without a tenant in this one.
    ///
    /// ```
    /// # use plimsoll_tower::{Tenant, TenantError};
    /// # #[derive(Clone)] struct Claims { account: String }
    /// # fn main() -> Result<(), TenantError> {
    /// let tenant = Tenant::extension(|claims: &Claims| Some(&claims.account))
    ///     .or(Tenant::forwarded_address("x-forwarded-for", 1)?);
    /// # drop(tenant);
    /// # Ok(()) }
    /// ```
    pub fn or(self, other: Self) -> Self {
        let text = format!("{} or {}", self.text, other.text);
        let remedy = format!("{}; or {}", self.remedy, other.remedy);
        let (first, plans) = (
            Arc::clone(&self.read),
            [self.plan.clone(), other.plan.clone()],
        );
        let either = Self::new(text, move |request| {
            let found = (self.read)(request).filter(|found| !found.as_str().is_empty());
            found.or_else(|| (other.read)(request))
        })
        .remedy(remedy);
        if plans.iter().all(Option::is_none) {
            return either;
        }
        // The plan is that of the source that has the tenant.
        either.plan(move |request| {
            let is_first = first(request).is_some_and(|found| !found.as_str().is_empty());
            let [one, other] = &plans;
            let plan = if is_first { one } else { other };
            plan.as_ref().and_then(|plan| plan(request))
        })
    }

    fn new(
        text: impl Into<Arc<str>>,
        read: impl for<'a> Fn(Head<'a>) -> Option<Found<'a>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            constant: None,
            read: Arc::new(read),
            text: text.into(),
            remedy:
                "the function must return a tenant, for what outer layers have put into the request"
                    .into(),
            plan: None,
        }
    }

    fn remedy(self, remedy: impl Into<Arc<str>>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }

    /// Returns the source for texts about it; `None` if it asks no request.
    #[doc(hidden)]
    #[must_use]
    pub fn source(&self) -> Option<TenantSource> {
        self.constant.is_none().then(|| TenantSource {
            name: self.text.to_string(),
            remedy: self.remedy.to_string(),
        })
    }

    fn of_all(tenant: &str) -> Self {
        let constant = Arc::<str>::from(tenant);
        let name = Arc::clone(&constant);
        Self {
            constant: Some(constant),
            ..Self::new(tenant, move |_| Some(Found::own(&name)))
        }
    }

    /// Returns the tenant that the source has for a request, if any. An empty one counts as the class `default`, and
    /// as invalid.
    #[inline]
    pub(super) fn find<'a>(&self, request: Head<'a>) -> Option<Found<'a>> {
        (self.read)(request)
    }

    #[inline]
    pub(super) fn plan_of<'a>(&self, request: Head<'a>) -> Option<&'a str> {
        self.plan.as_ref().and_then(|plan| plan(request))
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::of_all(DEFAULT_TENANT)
    }
}

/// Returns the empty tenant for a request that has the header, though without a usable value.
fn invalid<'a>(request: Head<'a>, header: &HeaderName) -> Option<Found<'a>> {
    request
        .headers
        .contains_key(header)
        .then_some(Found::Borrowed(""))
}

fn header_name(name: &str) -> Result<HeaderName, TenantError> {
    HeaderName::try_from(name).map_err(|_| TenantError::Header(name.to_owned()))
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.text)
    }
}

#[cfg(test)]
mod tests;
