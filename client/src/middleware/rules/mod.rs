//! Rules that map requests to buckets by path, route and method.

mod path;

use http::Method;

use path::{PathPattern, each_reading};

use super::request::trace::trace_of;
use super::{Charge, Decision, Extract, Head, Tenant};
use crate::{BucketError, BucketHandle, KeyHandle, Limiter};

/// An ordered list of rules. The first rule that matches a request applies.
///
/// A path can be written in several ways, of which a handler may see any: `/checkout` also as `/%63heckout` or
/// `/a/../checkout`. Rules are compared with the path as it was sent, with the decoded one, and with the decoded one
/// whose dot segments are resolved and whose empty segments are removed. Where these differ, the first rule that
/// matches any of them applies, and a request is unlimited only if it is by all of them. Case and a trailing slash
/// count, as they do for routes.
#[derive(Clone, Debug)]
pub struct Rules {
    tenant: Tenant,
    rules: Vec<Resolved>,
}

/// A rule with its parts resolved, so that a request only compares.
#[derive(Clone, Debug)]
struct Resolved {
    path: Option<PathPattern>,
    #[cfg(feature = "axum")]
    route: Option<String>,
    methods: Option<Vec<Method>>,
    /// Absent for requests that are unlimited.
    target: Option<Target>,
}

/// The keys that the requests of a rule count for.
#[derive(Clone, Debug)]
struct Target {
    bucket: BucketHandle,
    /// The key of every request, where all requests have one tenant.
    key: Option<KeyHandle>,
}

/// One rule: requests that meet all its conditions count for its bucket.
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until it is among `Rules`"]
pub struct Rule {
    /// Absent for requests that are unlimited.
    bucket: Option<String>,
    is_last: bool,
    path: Option<String>,
    #[cfg(feature = "axum")]
    route: Option<String>,
    methods: Option<Vec<Method>>,
}

/// The reason why rules are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// A bucket cannot be declared.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A path pattern is malformed, so that no request could match it.
    #[error(
        "path `{0}`: it must begin with `/`, may contain one `*`, at its end, and has no escapes and no braces: \
         write it decoded, and name the template of a route by `Rule::route`"
    )]
    Path(String),
    /// A route template is malformed, so that no router could have it.
    #[error("route `{0}`: it must begin with `/`, and `*` may only begin a capture, as in `{{*rest}}`")]
    Route(String),
}

impl Rule {
    /// Makes a rule that every request matches, until conditions are added.
    pub fn bucket(name: &str) -> Self {
        Self::new(Some(name), false)
    }

    /// Makes a rule for the requests that no other rule matches, wherever it is listed: nothing passes uncounted by
    /// accident. Exempt health checks by [`unlimited`](Self::unlimited).
    pub fn otherwise(bucket: &str) -> Self {
        Self::new(Some(bucket), true)
    }

    /// Makes a rule for requests that are neither limited nor counted, such as health checks.
    pub fn unlimited() -> Self {
        Self::new(None, false)
    }

    fn new(bucket: Option<&str>, is_last: bool) -> Self {
        Self {
            bucket: bucket.map(str::to_owned),
            is_last,
            path: None,
            #[cfg(feature = "axum")]
            route: None,
            methods: None,
        }
    }

    /// Restricts the rule to a path, or to a prefix if the pattern ends in `*`. Patterns are written decoded, and
    /// compared with all readings of the request's path without the query; see [`Rules`].
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Restricts the rule to a route of an axum router by its template, such as `/orders/{id}`. The rule matches
    /// exactly the requests that the router sends to the route. In a nested router the template is the whole one, with
    /// the prefixes of all routers around it.
    ///
    /// It needs a layer inside of the router, by `Router::layer` or `Router::route_layer`: before the router has chosen
    /// a route, no request matches.
    #[cfg(feature = "axum")]
    pub fn route(mut self, template: &str) -> Self {
        self.route = Some(template.to_owned());
        self
    }

    /// Restricts the rule to these methods, so that reads and writes can have different buckets.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }
}

impl Resolved {
    fn new(limiter: &Limiter, tenant: &Tenant, rule: Rule) -> Result<Self, RulesError> {
        let pattern = |path: String| PathPattern::parse(&path).ok_or(RulesError::Path(path));
        #[cfg(feature = "axum")]
        if let Some(route) = rule.route.as_ref().filter(|route| !is_template(route)) {
            return Err(RulesError::Route(route.clone()));
        }
        Ok(Self {
            path: rule.path.map(pattern).transpose()?,
            #[cfg(feature = "axum")]
            route: rule.route,
            methods: rule.methods,
            target: rule.bucket.map(|bucket| Target::new(limiter, tenant, &bucket)).transpose()?,
        })
    }

    fn matches(&self, request: Head<'_>, path: &[u8]) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(request.method))
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
            && self.matches_route(request)
    }

    #[cfg(feature = "axum")]
    fn matches_route(&self, request: Head<'_>) -> bool {
        self.route.as_ref().is_none_or(|route| {
            let matched = request.extensions.get::<axum::extract::MatchedPath>();
            matched.is_some_and(|matched| matched.as_str() == route)
        })
    }

    #[cfg(not(feature = "axum"))]
    const fn matches_route(&self, _: Head<'_>) -> bool {
        true
    }
}

#[cfg(feature = "axum")]
fn is_template(route: &str) -> bool {
    route.starts_with('/') && !route.replace("{*", "").contains('*')
}

impl Target {
    fn new(limiter: &Limiter, tenant: &Tenant, bucket: &str) -> Result<Self, BucketError> {
        let bucket = limiter.bucket(bucket)?;
        bucket.table.responses.prepare(bucket.place.bucket as usize);
        let key = tenant.constant_name().map(|tenant| bucket.key(tenant));
        Ok(Self { bucket, key })
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
        let mut rules: Vec<Rule> = rules.into_iter().collect();
        // A stable order: only rules for the rest move.
        rules.sort_by_key(|rule| rule.is_last);
        let rules = rules.into_iter().map(|rule| Resolved::new(limiter, &tenant, rule));
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, tenant })
    }

    /// Returns the bucket of the first rule that matches a reading of the request's path; `None` if the request is
    /// unlimited by all readings.
    fn target_of(&self, request: Head<'_>) -> Option<&Target> {
        let mut first: Option<(usize, &Target)> = None;
        each_reading(request.uri.path().as_bytes(), |path| {
            let rule = self.rules.iter().enumerate().find(|(_, rule)| rule.matches(request, path));
            let Some((index, Some(target))) = rule.map(|(index, rule)| (index, rule.target.as_ref())) else {
                return;
            };
            if first.is_none_or(|(earliest, _)| index < earliest) {
                first = Some((index, target));
            }
        });
        first.map(|(_, target)| target)
    }
}

impl Extract for Rules {
    fn extract(&self, request: Head<'_>) -> Option<Charge> {
        let target = self.target_of(request)?;
        Some(target.key.clone().unwrap_or_else(|| target.bucket.key(self.tenant.of(request))).into())
    }

    fn decide(&self, request: Head<'_>) -> Decision {
        let Some(target) = self.target_of(request) else { return Decision::PASS };
        let verdict = match &target.key {
            Some(key) => key.admit_by_trace(|| trace_of(request)),
            None => target.bucket.admit_by_trace(self.tenant.of(request), || trace_of(request)),
        };
        Decision::of(verdict, || target.bucket.recorder(), || target.bucket.clone())
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

    /// Returns the index of the rule whose bucket a request counts for.
    fn applies(rules: &Rules, method: Method, uri: &str) -> Option<usize> {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        let applied = rules.target_of(Head::of(&request))?;
        rules.rules.iter().position(|rule| rule.target.as_ref().is_some_and(|of| std::ptr::eq(of, applied)))
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
            (Method::GET, "/CART", None),
            (Method::GET, "/%63art", Some(2)),
            (Method::GET, "/orders/%2e%2e/cart", Some(0)),
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
    fn rule_for_the_rest_is_last_wherever_it_is_listed() {
        let rules = rules([Rule::otherwise("rest"), Rule::bucket("cart").path("/cart")]).unwrap();
        assert_eq!(applies(&rules, Method::GET, "/cart"), Some(0));
        assert_eq!(applies(&rules, Method::GET, "/carts"), Some(1));
    }

    #[test]
    fn request_is_unlimited_only_by_every_reading_of_its_path() {
        let rules = rules([
            Rule::unlimited().path("/static/*"),
            Rule::unlimited().path("/healthz"),
            Rule::bucket("cart").path("/cart"),
        ])
        .unwrap();
        for (uri, expected) in [
            ("/static/cart", None),
            ("/static/a%20b", None),
            ("/static/../cart", Some(2)),
            ("/static/%2e%2e%2fcart", Some(2)),
            ("/healthz/../cart", Some(2)),
            ("/healthz", None),
        ] {
            assert_eq!(applies(&rules, Method::GET, uri), expected, "{uri}");
        }
    }

    #[test]
    fn unmatchable_rule_is_an_error_at_the_start() {
        for bad in ["", "*", "orders", "/a*b", "/a/**", "https://shop.example/", "/a%20b", "/orders/{id}"] {
            let made = rules([Rule::bucket("b").path(bad)]);
            assert_eq!(made.unwrap_err(), RulesError::Path(bad.to_owned()));
        }
        for bad in ["", "orders", "/orders/*"] {
            let made = rules([Rule::bucket("b").route(bad)]);
            assert_eq!(made.unwrap_err(), RulesError::Route(bad.to_owned()));
        }
        let made = rules([Rule::bucket("no name")]);
        assert!(matches!(made.unwrap_err(), RulesError::Bucket(BucketError::Name { .. })));
    }
}
