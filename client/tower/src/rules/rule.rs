//! One rule, as a service writes it.

use std::fmt;
use std::sync::Arc;

use http::Method;

use super::pattern::Kind;
use crate::{Head, Tenant};

pub(super) type Cost = Arc<dyn Fn(Head<'_>) -> u32 + Send + Sync>;

/// One rule: requests that meet all its conditions count for its bucket.
#[derive(Clone)]
#[must_use = "a rule does nothing until it is among `Rules`"]
pub struct Rule {
    /// Absent for requests that are unlimited.
    pub(super) bucket: Option<String>,
    pub(super) is_otherwise: bool,
    pub(super) path: Option<(Kind, String)>,
    pub(super) methods: Option<Vec<Method>>,
    pub(super) cost: Option<Cost>,
    pub(super) tenant: Option<Tenant>,
    pub(super) also: Vec<Self>,
}

impl Rule {
    /// Makes a rule that every request matches, until conditions are added.
    pub fn bucket(name: &str) -> Self {
        Self::new(Some(name), false)
    }

    /// Makes a rule for the requests that no other rule matches, wherever it is listed: nothing passes without a limit
    /// by accident. Exempt health checks by [`unlimited`](Self::unlimited).
    pub fn otherwise(bucket: &str) -> Self {
        Self::new(Some(bucket), true)
    }

    /// Makes a rule for requests that are not limited, such as health checks.
    pub fn unlimited() -> Self {
        Self::new(None, false)
    }

    fn new(bucket: Option<&str>, is_otherwise: bool) -> Self {
        Self {
            bucket: bucket.map(str::to_owned),
            is_otherwise,
            path: None,
            methods: None,
            cost: None,
            tenant: None,
            also: Vec::new(),
        }
    }

    /// Restricts the rule to the paths of a template in the syntax of axum 0.8: `/orders`, `/orders/{id}` for one
    /// segment and `/files/{*rest}` for all that is below `/files/`. A literal brace is written twice. It is compared
    /// with all readings of the request's path without the query; see [`Rules`](super::Rules).
    ///
    /// A rule has one path: a later one replaces an earlier one.
    pub fn path(self, template: &str) -> Self {
        self.on(Kind::Template, template)
    }

    /// Restricts the rule to one path, taken literally.
    pub fn exact(self, path: &str) -> Self {
        self.on(Kind::Exact, path)
    }

    /// Restricts the rule to a path and all paths below it: `/orders` matches `/orders`, `/orders/` and `/orders/7`,
    /// and not `/orders2`. The prefix `/` matches every request; `/orders/` leaves `/orders` out. A gRPC service is the
    /// prefix `/package.Service`.
    pub fn prefix(self, path: &str) -> Self {
        self.on(Kind::Prefix, path)
    }

    fn on(mut self, kind: Kind, text: &str) -> Self {
        self.path = Some((kind, text.to_owned()));
        self
    }

    /// Restricts the rule to these methods, so that reads and writes can have different buckets.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }

    /// Sets the number of requests that a request counts as, for heavy requests. It is admitted or
    /// refused as a whole. Callers may influence the number, so it is limited to 1 to
    /// [`COST_MAX`](crate::COST_MAX), except for exact quotas, which take all of it.
    ///
    /// ```
    /// # use plimsoll_tower::Rule;
    /// let rule = Rule::bucket("export")
    ///     .path("/export")
    ///     .cost(|request| request.header("x-rows").and_then(|rows| rows.parse().ok()).unwrap_or(1_000) / 1_000);
    /// # drop(rule);
    /// ```
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Reads the tenant of this rule's requests from another source than the [rules](super::Rules)' own.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Lets the rule's requests count for the bucket of another rule as well, by its own tenant and cost, such as one
    /// by workspace and one by user. All of them admit a request by one draw, or none is charged; the response names
    /// the strictest of those that refuse. The other rule has no conditions, and a request counts for at most
    /// [`KEYS_MAX`](crate::KEYS_MAX) buckets.
    ///
    /// ```
    /// # use plimsoll_tower::{Rule, Tenant, TenantError};
    /// # fn main() -> Result<(), TenantError> {
    /// let by_user = Rule::bucket("by-user").tenant(Tenant::header("x-user")?);
    /// let rule = Rule::bucket("orders").prefix("/orders").also(by_user);
    /// # drop(rule);
    /// # Ok(()) }
    /// ```
    pub fn also(mut self, other: Self) -> Self {
        self.also.push(other);
        self
    }

    pub(super) fn describe(&self, number: usize) -> String {
        format!("rule {number} ({})", self.parts())
    }

    /// Returns bucket and conditions of the rule, which no two rules of a valid list share.
    pub(super) fn parts(&self) -> String {
        let mut parts = vec![match (&self.bucket, self.is_otherwise) {
            (None, _) => "unlimited".to_owned(),
            (Some(bucket), false) => format!("bucket `{bucket}`"),
            (Some(bucket), true) => format!("bucket `{bucket}` otherwise"),
        }];
        parts.extend(
            self.path
                .as_ref()
                .map(|(kind, text)| format!("{} `{text}`", kind.as_str())),
        );
        parts.extend(self.methods.as_ref().map(|methods| {
            let methods: Vec<_> = methods.iter().map(Method::as_str).collect();
            format!("methods {}", methods.join(" "))
        }));
        let also = self.also.iter();
        parts.extend(also.map(|rule| format!("also {}", rule.parts())));
        parts.join(", ")
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.parts())
    }
}
