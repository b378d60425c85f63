//! The rules for requests over HTTP: headers name the key, or the rules of the client's middleware
//! do.

use ::http::HeaderName;
use plimsoll_client::internals::TenantFound;
use plimsoll_core::names::DEFAULT_TENANT;
use plimsoll_tower::{Head, Rule, Tenant, TenantError};

/// Header that names the bucket if the file has no rules for HTTP.
pub const BUCKET_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-bucket");
/// Header that names the tenant, unless the file names another header.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-tenant");
/// Header with the cost of a request if the file has no rules for HTTP.
pub const COST_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-cost");

/// Rules for requests over HTTP.
#[derive(Clone, Debug, Default)]
pub struct HttpRules {
    /// Source of a request's tenant.
    pub tenant: HttpTenant,
    /// Header with the tenant's plan, if any.
    pub plan: Option<HeaderName>,
    /// True if `rules` ignore the case of ASCII letters in paths.
    pub ignore_case: bool,
    /// Rules in order; `None` if a header names the bucket.
    pub rules: Option<Vec<Rule>>,
}

/// Source of a request's tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTenant {
    /// A header, which the proxy sets.
    Header(HeaderName),
    /// One tenant for all requests.
    Fixed(Box<str>),
}

impl HttpTenant {
    /// Returns the tenant of a request: the class `default` if the header is absent, and an empty
    /// tenant, which counts as that class, if it is repeated or not UTF-8. Also returns what the header has;
    /// `None` for a fixed tenant.
    #[must_use]
    pub fn of<'a>(&'a self, request: Head<'a>) -> (&'a str, Option<TenantFound>) {
        match self {
            Self::Header(name) => {
                let invalid = || request.headers.contains_key(name).then_some("");
                let text = request.header(name).or_else(invalid);
                (text.unwrap_or(DEFAULT_TENANT), Some(TenantFound::of(text)))
            }
            Self::Fixed(name) => (name, None),
        }
    }

    /// Returns this source for the rules of the middleware.
    ///
    /// # Errors
    /// When a fixed tenant is empty, which validated rules never have.
    pub fn to_middleware(&self) -> Result<Tenant, TenantError> {
        match self {
            Self::Header(name) => Tenant::header(name.as_str()),
            Self::Fixed(name) => Tenant::constant(name),
        }
    }
}

impl HttpRules {
    /// Returns the source of tenants and their plans for the rules of the middleware.
    ///
    /// # Errors
    /// When a fixed tenant is empty, which validated rules never have.
    pub fn to_middleware(&self) -> Result<Tenant, TenantError> {
        let tenant = self.tenant.to_middleware()?;
        Ok(match self.plan.clone() {
            None => tenant,
            Some(plan) => tenant.plan(move |head| head.header(&plan)),
        })
    }
}

impl Default for HttpTenant {
    fn default() -> Self {
        Self::Header(TENANT_HEADER)
    }
}
