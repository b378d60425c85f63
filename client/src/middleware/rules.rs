//! Rules: buckets by path and method, for services that would rather not write a closure.

use http::Method;
use http::request::Parts;

use super::trace::trace_of;
use super::{Decision, Extract, Tenant};
use crate::{BucketError, BucketHandle, KeyHandle, Limiter};

/// An ordered list of rules. The first that matches a request holds.
#[derive(Clone, Debug)]
pub struct Rules {
    tenant: Tenant,
    rules: Vec<Resolved>,
}

/// One rule: requests that meet all its conditions ask its bucket.
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until it is among `Rules`"]
pub struct Rule {
    bucket: String,
    path: Option<String>,
    methods: Option<Vec<Method>>,
}

/// Why rules cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// A bucket cannot be had.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A path that no request could match, or that does not mean what it seems to.
    #[error("path `{0}`: it begins with `/`, and may have one `*`, at its end")]
    Path(String),
}

/// A rule whose bucket was looked up once and for all.
#[derive(Clone, Debug)]
struct Resolved {
    path: Option<Pattern>,
    methods: Option<Vec<Method>>,
    bucket: BucketHandle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(String),
    Prefix(String),
}

impl Rule {
    /// Every request asks this bucket, unless conditions follow.
    pub fn bucket(name: &str) -> Self {
        Self { bucket: name.to_owned(), path: None, methods: None }
    }

    /// Only requests for this path: the whole of it, or its beginning if it ends in `*`. Compared byte by byte, without
    /// the query, as it stands in the request.
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Only requests with one of these methods, so that reads and writes may ask different buckets.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }
}

impl Rules {
    /// Looks every bucket up, once: declares it to the limiter and so asks for its directives before there is any
    /// traffic.
    ///
    /// # Errors
    /// When a bucket's name or a path is invalid, or the limiter has no room for another bucket.
    pub fn new(
        limiter: &Limiter,
        tenant: Tenant,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Result<Self, RulesError> {
        let resolve = |rule: Rule| {
            let path = rule.path.map(Pattern::new).transpose()?;
            let bucket = limiter.bucket(&rule.bucket)?;
            let recorder = bucket.recorder();
            recorder.table.responses.prepare(recorder.bucket as usize);
            Ok(Resolved { path, methods: rule.methods, bucket })
        };
        Ok(Self { tenant, rules: rules.into_iter().map(resolve).collect::<Result<_, RulesError>>()? })
    }
}

impl Rules {
    /// The bucket of the first rule that matches.
    fn bucket_of(&self, request: &Parts) -> Option<&BucketHandle> {
        self.rules.iter().find(|rule| rule.matches(request)).map(|rule| &rule.bucket)
    }
}

impl Extract for Rules {
    fn extract(&self, request: &Parts) -> Option<KeyHandle> {
        Some(self.bucket_of(request)?.key(self.tenant.of(request)))
    }

    fn decide(&self, request: &Parts) -> Decision {
        self.bucket_of(request).map_or(Decision::PASS, |bucket| {
            let verdict = bucket.admit_by_trace(self.tenant.of(request), || trace_of(request));
            Decision { verdict, recorder: Some(bucket.recorder()) }
        })
    }
}

impl Resolved {
    fn matches(&self, request: &Parts) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(&request.method))
            && self.path.as_ref().is_none_or(|path| path.matches(request.uri.path()))
    }
}

impl Pattern {
    fn new(text: String) -> Result<Self, RulesError> {
        let prefix = text.strip_suffix('*');
        let fixed = prefix.unwrap_or(&text);
        if !fixed.starts_with('/') || fixed.contains('*') {
            return Err(RulesError::Path(text));
        }
        Ok(match prefix {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text),
        })
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix),
        }
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

    /// Which rule, counted from 0, holds for a request.
    fn holds(rules: &Rules, method: Method, uri: &str) -> Option<usize> {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0;
        rules.rules.iter().position(|rule| rule.matches(&request))
    }

    #[test]
    fn the_first_rule_that_matches_holds() {
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
            assert_eq!(holds(&rules, method.clone(), uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_rule_without_conditions_takes_what_is_left() {
        let rules = rules([Rule::bucket("cart").path("/cart"), Rule::bucket("rest")]).unwrap();
        assert_eq!(holds(&rules, Method::OPTIONS, "*"), Some(1));
        assert_eq!(holds(&rules, Method::GET, "/"), Some(1));
    }

    #[test]
    fn what_could_not_match_is_an_error_at_the_start() {
        for bad in ["", "*", "orders", "/a*b", "/a/**", "https://shop.example/"] {
            let made = rules([Rule::bucket("b").path(bad)]);
            assert_eq!(made.unwrap_err(), RulesError::Path(bad.to_owned()));
        }
        let made = rules([Rule::bucket("no name")]);
        assert!(matches!(made.unwrap_err(), RulesError::Bucket(BucketError::Name { .. })));
    }
}
