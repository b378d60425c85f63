//! Rules that map requests to buckets by path, route and method.

mod check;
mod error;
mod pattern;
mod readings;
mod resolved;
mod rule;
mod steps;
mod template;

pub use error::{KEYS_MAX, PathFault, RulesError};
pub use rule::Rule;

use std::sync::Arc;

use plimsoll_client::internals::Wiring;
use plimsoll_client::{Limiter, Request};

use smallvec::SmallVec;

use readings::each_reading;
use resolved::{Resolved, Target};

use super::{Head, Pass, Tenant};

/// An ordered list of rules. The first rule that matches a request applies.
///
/// A path can be written in several ways, and a service may read `/admin` in `/%61dmin`,
/// `/%2561dmin`, `/a/../admin`, `//admin`, `/admin;x=1` or `/a\..\admin`. Rules are compared with
/// the path as it was sent and with every reading of it: decoded any number of times, with
/// backslashes as slashes, without the parameters of segments, with slashes merged and with dot
/// segments resolved, in any order. The first rule that matches any of them applies, so the
/// strictest is listed first, and a request is unlimited only if it is by all of them. The first
/// limited rule with a matching method applies to a path with more readings than a service has a
/// use for: more than 128, or by steps over more bytes than 8 KiB plus eight times its length.
/// Case counts unless it is [ignored](Self::ignore_case), and a trailing slash counts.
///
/// With the feature `axum`, a layer inside of a nested router compares both the path without the
/// prefix that the router has stripped and the whole one.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) limiter: Limiter,
    tenant: Tenant,
    rules: Vec<Resolved>,
    wiring: Arc<Wiring>,
    limits_preflights: bool,
    ignores_case: bool,
    #[cfg(feature = "axum")]
    has_path: bool,
}

impl Rules {
    /// Checks the rules, and declares every bucket to the limiter, which requests their directives before there is any
    /// traffic.
    ///
    /// # Errors
    /// If the list is empty, a rule is malformed or could never apply, a bucket's name is invalid,
    /// or the limiter has no room for another bucket. The error names the rule and the remedy.
    pub fn new(
        limiter: &Limiter,
        tenant: Tenant,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Result<Self, RulesError> {
        let checked = check::check(&rules.into_iter().collect::<Vec<_>>())?;
        let texts: Vec<String> = checked.iter().map(|rule| rule.rule.parts()).collect();
        let rules = checked
            .into_iter()
            .map(|rule| Resolved::new(limiter, &tenant, rule));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            wiring: limiter.watch_wiring(texts, tenant.source()),
            limiter: limiter.clone(),
            tenant,
            limits_preflights: false,
            ignores_case: false,
            #[cfg(feature = "axum")]
            has_path: rules.iter().any(|rule| rule.path.is_some()),
            rules,
        })
    }

    /// Returns the fault of each rule that has one, with its index, without a limiter: for a reader
    /// of rules that reports all of them together. Names of buckets are not checked.
    #[must_use]
    pub fn faults(rules: &[Rule]) -> Vec<(usize, RulesError)> {
        check::review(rules).1
    }

    /// Limits CORS preflights by the rules as well. By default they pass and are counted as passed: a browser sends
    /// them on its own before the request of a page, does not repeat a refused one, and a layer in the service usually
    /// responds to them. A preflight is an `OPTIONS` request with the headers `Origin` and
    /// `Access-Control-Request-Method`. Choose this where handlers do work for `OPTIONS`.
    #[must_use]
    pub fn limit_preflights(mut self) -> Self {
        self.limits_preflights = true;
        self
    }

    /// Compares paths without regard to the case of ASCII letters, for services that route so.
    #[must_use]
    pub fn ignore_case(mut self) -> Self {
        self.ignores_case = true;
        self.rules.iter_mut().for_each(Resolved::lower_path);
        self
    }

    /// Compares a request with the rules, by all readings of its path. Returns its target, or the reason why it has
    /// none.
    #[inline]
    fn target(&self, request: Head<'_>) -> Result<&Target, Pass> {
        if !self.limits_preflights && request.is_preflight() {
            return Err(Pass::Preflight);
        }
        #[cfg(feature = "axum")]
        let whole = self.whole_path(request);
        #[cfg(not(feature = "axum"))]
        let whole = None;
        let mut first: Option<(usize, &Target)> = None;
        let (mut all_unlimited, mut exempted_by) = (true, 0);
        let path = request.uri.path().as_bytes();
        let is_complete = each_reading(path, whole, self.ignores_case, |reading| {
            let mut rules = self.rules.iter().enumerate();
            let rule = rules.find(|(_, rule)| rule.matches(request.method, reading));
            all_unlimited &= rule.is_some();
            let Some((index, rule)) = rule else {
                return;
            };
            match &rule.target {
                None => exempted_by = index,
                Some(target) if first.is_none_or(|(earliest, _)| index < earliest) => {
                    first = Some((index, target));
                }
                Some(_) => {}
            }
        });
        if !is_complete {
            // A reading that was left out may match any of them.
            let rules = self.rules.iter().enumerate();
            let mut rules = rules.filter(|(_, rule)| rule.takes(request.method));
            let limited = rules.find_map(|(index, rule)| Some((index, rule.target.as_ref()?)));
            first = limited.or(first);
        }
        match first {
            Some((index, target)) => {
                self.wiring.on_match(index);
                Ok(target)
            }
            None if all_unlimited => {
                self.wiring.on_exempt(exempted_by);
                Err(Pass::Unlimited)
            }
            None => {
                self.wiring.on_no_rule(request.uri.path());
                Err(Pass::NoRule)
            }
        }
    }

    /// Returns the path before routers around the layer have stripped prefixes of it, if they have.
    #[cfg(feature = "axum")]
    fn whole_path<'a>(&self, request: Head<'a>) -> Option<&'a [u8]> {
        if !self.has_path {
            return None;
        }
        let whole = request
            .extensions
            .get::<axum::extract::OriginalUri>()?
            .0
            .path();
        (whole != request.uri.path()).then_some(whole.as_bytes())
    }

    /// Compares a request with the rules for a caller that decides by itself, such as a process
    /// that answers for other services: calls `with` with what the request counts for, or returns
    /// why the request passes without a decision, which is counted as for a layer.
    ///
    /// # Errors
    /// If no rule matches the request, a rule exempts it, or it is a CORS preflight.
    pub fn ask<R>(&self, head: Head<'_>, with: impl FnOnce(&Request<'_>) -> R) -> Result<R, Pass> {
        self.ask_uncounted(head, with).inspect_err(|pass| {
            self.limiter.pass(*pass);
        })
    }

    #[inline]
    pub(crate) fn ask_uncounted<R>(
        &self,
        head: Head<'_>,
        with: impl FnOnce(&Request<'_>) -> R,
    ) -> Result<R, Pass> {
        let target = self.target(head)?;
        if !target.also.is_empty() {
            return Ok(self.ask_several(head, target, with));
        }
        let found = target.tenant(head, &self.tenant, &self.wiring);
        Ok(with(&target.request(head, &self.tenant, found.as_ref())))
    }

    #[inline(never)]
    fn ask_several<R>(
        &self,
        head: Head<'_>,
        target: &Target,
        with: impl FnOnce(&Request<'_>) -> R,
    ) -> R {
        let targets = || std::iter::once(target).chain(&target.also);
        let found: SmallVec<[_; KEYS_MAX]> = targets()
            .map(|target| target.tenant(head, &self.tenant, &self.wiring))
            .collect();
        let requests: SmallVec<[Request<'_>; KEYS_MAX]> = targets()
            .zip(&found)
            .map(|(target, found)| target.request(head, &self.tenant, found.as_ref()))
            .collect();
        with(&Request::all(&requests))
    }
}

#[cfg(test)]
mod tests;
