//! Rules that map requests to buckets by path and method.

use http::Method;
use http::request::Parts;

use super::trace::trace_of;
use super::{Decision, Extract, Tenant};
use crate::{BucketError, BucketHandle, KeyHandle, Limiter};

/// An ordered list of rules. The first rule that matches a request applies.
#[derive(Clone, Debug)]
pub struct Rules {
    tenant: Tenant,
    /// Each with its bucket, resolved.
    rules: Vec<(Rule, BucketHandle)>,
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

    fn check(&self) -> Result<(), RulesError> {
        let Some(pattern) = &self.path else { return Ok(()) };
        let fixed = pattern.strip_suffix('*').unwrap_or(pattern);
        if !fixed.starts_with('/') || fixed.contains('*') {
            return Err(RulesError::Path(pattern.clone()));
        }
        Ok(())
    }

    fn matches(&self, request: &Parts) -> bool {
        let path = request.uri.path();
        let is_path = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == pattern,
        };
        self.methods.as_ref().is_none_or(|methods| methods.contains(&request.method))
            && self.path.as_ref().is_none_or(is_path)
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
        let resolve = |rule: Rule| {
            rule.check()?;
            let bucket = limiter.bucket(&rule.bucket)?;
            bucket.table.responses.prepare(bucket.place.bucket as usize);
            Ok((rule, bucket))
        };
        Ok(Self { tenant, rules: rules.into_iter().map(resolve).collect::<Result<_, RulesError>>()? })
    }

    /// Returns the bucket of the first rule that matches.
    fn bucket_of(&self, request: &Parts) -> Option<&BucketHandle> {
        self.rules.iter().find(|(rule, _)| rule.matches(request)).map(|(_, bucket)| bucket)
    }
}

impl Extract for Rules {
    fn extract(&self, request: &Parts) -> Option<KeyHandle> {
        Some(self.bucket_of(request)?.key(self.tenant.of(request)))
    }

    fn decide(&self, request: &Parts) -> Decision {
        self.bucket_of(request).map_or(Decision::PASS, |bucket| {
            let verdict = bucket.admit_by_trace(self.tenant.of(request), || trace_of(request));
            Decision { verdict, recorder: Some(bucket.clone()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limiter;
    use http::Request;

    fn rules(rules: impl IntoIterator<Item = Rule>) -> Result<Rules, RulesError> {
        let (limiter, _) = Limiter::builder("shop").unwrap().build().unwrap();
        Rules::new(&limiter, Tenant::default(), rules)
    }

    /// Returns the index of the rule that applies to a request.
    fn applies(rules: &Rules, method: Method, uri: &str) -> Option<usize> {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0;
        rules.rules.iter().position(|(rule, _)| rule.matches(&request))
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
