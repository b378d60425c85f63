//! Rules that map requests to buckets by path and method.

use http::Method;

use super::trace::trace_of;
use super::{Decision, Extract, Head, Tenant};
use crate::{BucketError, BucketHandle, KeyHandle, Limiter};

/// An ordered list of rules. The first rule that matches a request applies.
#[derive(Clone, Debug)]
pub struct Rules {
    tenant: Tenant,
    rules: Vec<Resolved>,
}

/// A rule with its parts resolved, so that a request only compares.
#[derive(Clone, Debug)]
struct Resolved {
    path: Path,
    methods: Option<Vec<Method>>,
    bucket: BucketHandle,
    /// The key of every request, where all requests have one tenant.
    key: Option<KeyHandle>,
}

/// The paths that a rule applies to.
#[derive(Clone, Debug)]
enum Path {
    Any,
    Exact(String),
    Prefix(String),
}

/// One rule: requests that meet all its conditions count for its bucket.
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until it is among `Rules`"]
pub struct Rule {
    bucket: String,
    path: Option<String>,
    methods: Option<Vec<Method>>,
}

/// The reason why rules are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// A bucket cannot be declared.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A path pattern is malformed, so that no request could match it.
    #[error("path `{0}`: it must begin with `/`, and may contain one `*`, at its end")]
    Path(String),
}

impl Rule {
    /// Makes a rule that every request matches, until conditions are added.
    pub fn bucket(name: &str) -> Self {
        Self { bucket: name.to_owned(), path: None, methods: None }
    }

    /// Restricts the rule to a path, or to a prefix if the pattern ends in `*`. The request's path is
    /// compared byte by byte, without decoding and without the query.
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Restricts the rule to these methods, so that reads and writes can have different buckets.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }
}

impl Path {
    fn parse(pattern: &str) -> Result<Self, RulesError> {
        let prefix = pattern.strip_suffix('*');
        let fixed = prefix.unwrap_or(pattern);
        if !fixed.starts_with('/') || fixed.contains('*') {
            return Err(RulesError::Path(pattern.to_owned()));
        }
        let make = if prefix.is_some() { Self::Prefix } else { Self::Exact };
        Ok(make(fixed.to_owned()))
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix),
        }
    }
}

impl Resolved {
    fn new(limiter: &Limiter, tenant: &Tenant, rule: Rule) -> Result<Self, RulesError> {
        let path = rule.path.map_or(Ok(Path::Any), |pattern| Path::parse(&pattern))?;
        let bucket = limiter.bucket(&rule.bucket)?;
        bucket.table.responses.prepare(bucket.place.bucket as usize);
        let key = tenant.constant_name().map(|tenant| bucket.key(tenant));
        Ok(Self { path, methods: rule.methods, bucket, key })
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method)) && self.path.matches(path)
    }
}

impl Rules {
    /// Declares every bucket to the limiter, which requests their directives before there is any traffic.
    ///
    /// # Errors
    /// When a bucket's name or a path is invalid, or the limiter has no room for another bucket.
    pub fn new(
        limiter: &Limiter,
        tenant: Tenant,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Result<Self, RulesError> {
        let rules = rules.into_iter().map(|rule| Resolved::new(limiter, &tenant, rule));
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, tenant })
    }

    /// Returns the first rule that matches.
    fn rule_of(&self, request: Head<'_>) -> Option<&Resolved> {
        let path = request.uri.path();
        self.rules.iter().find(|rule| rule.matches(request.method, path))
    }
}

impl Extract for Rules {
    fn extract(&self, request: Head<'_>) -> Option<KeyHandle> {
        let rule = self.rule_of(request)?;
        Some(rule.key.clone().unwrap_or_else(|| rule.bucket.key(self.tenant.of(request))))
    }

    fn decide(&self, request: Head<'_>) -> Decision {
        let Some(rule) = self.rule_of(request) else { return Decision::PASS };
        let verdict = match &rule.key {
            Some(key) => key.admit_by_trace(|| trace_of(request)),
            None => rule.bucket.admit_by_trace(self.tenant.of(request), || trace_of(request)),
        };
        Decision { verdict, recorder: Some(rule.bucket.recorder()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limiter;

    fn rules(rules: impl IntoIterator<Item = Rule>) -> Result<Rules, RulesError> {
        let (limiter, _) = Limiter::builder("shop").unwrap().build().unwrap();
        Rules::new(&limiter, Tenant::default(), rules)
    }

    /// Returns the index of the rule that applies to a request.
    fn applies(rules: &Rules, method: Method, uri: &str) -> Option<usize> {
        let uri: http::Uri = uri.parse().unwrap();
        rules.rules.iter().position(|rule| rule.matches(&method, uri.path()))
    }

    #[test]
    fn first_matching_rule_applies() {
        let rules = rules([
            Rule::bucket("read").path("/orders/*").methods([Method::GET, Method::HEAD]),
            Rule::bucket("write").path("/orders/*"),
            Rule::bucket("cart").path("/cart"),
            Rule::bucket("delete").methods([Method::DELETE]),
        ])
        .unwrap();
        for (method, uri, expected) in [
            (Method::GET, "/orders/7", Some(0)),
            (Method::HEAD, "/orders/", Some(0)),
            (Method::PUT, "/orders/7?force=1", Some(1)),
            (Method::GET, "/orders", None),
            (Method::GET, "http://shop.example/cart?x=/orders/", Some(2)),
            (Method::GET, "/cart/", None),
            (Method::DELETE, "/orders/7", Some(1)),
            (Method::DELETE, "/anything", Some(3)),
            (Method::GET, "/healthz", None),
        ] {
            assert_eq!(applies(&rules, method.clone(), uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn rule_without_conditions_matches_the_rest() {
        let rules = rules([Rule::bucket("cart").path("/cart"), Rule::bucket("rest")]).unwrap();
        assert_eq!(applies(&rules, Method::OPTIONS, "*"), Some(1));
        assert_eq!(applies(&rules, Method::GET, "/"), Some(1));
    }

    #[test]
    fn unmatchable_rule_is_an_error_at_the_start() {
        for bad in ["", "*", "orders", "/a*b", "/a/**", "https://shop.example/"] {
            let made = rules([Rule::bucket("b").path(bad)]);
            assert_eq!(made.unwrap_err(), RulesError::Path(bad.to_owned()));
        }
        let made = rules([Rule::bucket("no name")]);
        assert!(matches!(made.unwrap_err(), RulesError::Bucket(BucketError::Name { .. })));
    }
}
