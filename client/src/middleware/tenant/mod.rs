//! The tenant of a request.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::InvalidHeaderName;
use plimsoll_core::names::{DEFAULT_TENANT, InvalidName, check_name};

use super::Head;

/// The source of a request's tenant. A request without a valid tenant counts as the class `default`; so does
/// every request of `Tenant::default()`.
#[derive(Clone, Debug, Default)]
pub struct Tenant(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Default,
    Header(HeaderName),
    Constant(Arc<str>),
    Fn(Arc<Read>),
}

type Read = dyn Fn(Head<'_>) -> Option<&str> + Send + Sync;

impl Tenant {
    /// Reads the tenant from a value of type `T` that a layer before this one put into the request's
    /// extensions, such as the claims of a verified token. A request without it counts as `default`.
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

    /// Reads the tenant from a header. A request without it, with several, or with an invalid value counts as
    /// `default`.
    ///
    /// Callers can send any header: one that names a large tenant takes that tenant's share, and one that
    /// invents names takes from the class `default`. So let an authenticating proxy at the edge replace it, or
    /// use [`extension`](Self::extension).
    ///
    /// # Errors
    /// When the header's name is invalid.
    pub fn header(name: &str) -> Result<Self, InvalidHeaderName> {
        HeaderName::try_from(name).map(Self::from)
    }

    /// Uses one tenant for every request.
    ///
    /// # Errors
    /// When the tenant's name is invalid.
    pub fn constant(tenant: &str) -> Result<Self, InvalidName> {
        check_name(tenant).map(|()| Self(Source::Constant(tenant.into())))
    }

    /// Reads the tenant by a function of the request's head.
    ///
    /// ```
    /// # use plimsoll_client::middleware::Tenant;
    /// let tenant = Tenant::from_fn(|request| request.uri.host());
    /// # drop(tenant);
    /// ```
    pub fn from_fn(read: impl Fn(Head<'_>) -> Option<&str> + Send + Sync + 'static) -> Self {
        Self(Source::Fn(Arc::new(read)))
    }

    /// Returns the tenant of all requests, if they have the same one.
    pub(super) fn constant_name(&self) -> Option<&str> {
        match &self.0 {
            Source::Default => Some(DEFAULT_TENANT),
            Source::Constant(tenant) => Some(tenant),
            Source::Header(_) | Source::Fn(_) => None,
        }
    }

    /// Returns the tenant of a request.
    pub(super) fn of<'a>(&'a self, request: Head<'a>) -> &'a str {
        let tenant = match &self.0 {
            Source::Default => None,
            Source::Header(name) => only(request, name),
            Source::Constant(tenant) => Some(&**tenant),
            Source::Fn(read) => read(request),
        };
        tenant.unwrap_or(DEFAULT_TENANT)
    }
}

impl From<HeaderName> for Tenant {
    fn from(name: HeaderName) -> Self {
        Self(Source::Header(name))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_TENANT),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Constant(tenant) => fmt::Debug::fmt(tenant, f),
            Self::Fn(_) => f.write_str("function"),
        }
    }
}

/// Returns the value of a header that occurs exactly once; several values would be ambiguous.
pub(in crate::middleware) fn only<'a>(request: Head<'a>, name: &HeaderName) -> Option<&'a str> {
    let value = request.headers.get(name)?;
    // Few requests repeat any name, so that most need one search.
    let has_repeated_names = request.headers.len() > request.headers.keys_len();
    if has_repeated_names && request.headers.get_all(name).iter().nth(1).is_some() {
        return None;
    }
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn with(values: &[&[u8]]) -> Request<()> {
        let mut request = Request::new(());
        for value in values {
            request.headers_mut().append("x-tenant", HeaderValue::from_bytes(value).unwrap());
        }
        request
    }

    #[test]
    fn header_counts_only_with_one_valid_value() {
        let tenant = Tenant::header("X-Tenant").unwrap();
        let cases: [(&[&[u8]], &str); 5] = [
            (&[b"acme"], "acme"),
            (&[], "default"),
            (&[b"acme", b"acme"], "default"),
            (&[b"caf\xc3\xa9"], "default"),
            (&[b"\xff\xfe"], "default"),
        ];
        for (values, expected) in cases {
            assert_eq!(tenant.of(Head::of(&with(values))), expected, "{values:?}");
        }
        assert!(Tenant::header("x tenant").is_err());
    }

    #[test]
    fn tenant_comes_from_verified_claims_and_not_from_a_header() {
        #[derive(Clone)]
        struct Claims(Option<String>);
        let tenant = Tenant::extension(|claims: &Claims| claims.0.as_deref());
        let mut request = with(&[b"big"]);
        assert_eq!(tenant.of(Head::of(&request)), "default", "no token was verified");
        for (account, expected) in [(Some("acme"), "acme"), (None, "default")] {
            request.extensions_mut().insert(Claims(account.map(str::to_owned)));
            assert_eq!(tenant.of(Head::of(&request)), expected);
        }
    }

    #[test]
    fn tenant_may_be_constant_or_read_by_a_function() {
        assert_eq!(Tenant::default().of(Head::of(&with(&[b"acme"]))), "default");
        assert_eq!(Tenant::constant("batch").unwrap().of(Head::of(&with(&[b"acme"]))), "batch");
        assert!(Tenant::constant("two words").is_err());
        let by_host = Tenant::from_fn(|request| request.uri.host());
        let mut request = with(&[]);
        assert_eq!(by_host.of(Head::of(&request)), "default");
        *request.uri_mut() = "http://acme.example/".parse().unwrap();
        assert_eq!(by_host.of(Head::of(&request)), "acme.example");
    }
}
