//! A rule with its parts resolved, so that a request only compares.

use std::sync::Arc;

use http::Method;
use plimsoll_client::internals::{KeyHandle, TenantFound, Wiring};
use plimsoll_client::{BucketError, BucketHandle, Limiter, Request};
use plimsoll_core::names::DEFAULT_TENANT;

use super::check::Checked;
use super::error::RulesError;
use super::pattern::PathPattern;
use super::readings::Reading;
use super::rule::{Cost, Rule};
use crate::tenant::Found;
use crate::{Head, Tenant};

#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) path: Option<PathPattern>,
    methods: Option<Vec<Method>>,
    /// Absent for requests that are unlimited.
    pub(super) target: Option<Target>,
}

#[derive(Clone)]
pub(super) struct Target {
    pub(super) bucket: BucketHandle,
    /// The key of every request, where all requests have one tenant and no plan.
    pub(super) key: Option<KeyHandle>,
    cost: Option<Cost>,
    /// The source of the tenant and its wiring, where the rule has its own.
    source: Option<(Tenant, Arc<Wiring>)>,
    /// The other targets of the same requests.
    pub(super) also: Vec<Self>,
}

impl Resolved {
    pub(super) fn new(
        limiter: &Limiter,
        tenant: &Tenant,
        checked: Checked,
    ) -> Result<Self, RulesError> {
        let Checked {
            rule, path, name, ..
        } = checked;
        let target = Target::new(limiter, tenant, &rule)
            .map_err(|source| RulesError::Bucket { rule: name, source })?;
        Ok(Self {
            path,
            methods: rule.methods,
            target,
        })
    }

    #[inline]
    pub(super) fn matches(&self, method: &Method, reading: Reading<'_>) -> bool {
        let path = self.path.as_ref();
        path.is_none_or(|path| reading.any(|text| path.matches(text, reading.is_decoded)))
            && self.takes(method)
    }

    #[inline]
    pub(super) fn takes(&self, method: &Method) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.contains(method))
    }

    pub(super) fn lower_path(&mut self) {
        self.path = self.path.as_ref().map(PathPattern::lowered);
    }
}

impl Target {
    fn new(limiter: &Limiter, tenant: &Tenant, rule: &Rule) -> Result<Option<Self>, BucketError> {
        let Some(bucket) = &rule.bucket else {
            return Ok(None);
        };
        let bucket = limiter.bucket(bucket)?;
        bucket.prepare_responses();
        let own = rule.tenant.as_ref();
        let source = own.map(|own| (own.clone(), limiter.watch_wiring([], own.source())));
        let constant = own.unwrap_or(tenant).constant.as_deref();
        let also = rule.also.iter();
        let also = also.filter_map(|other| Self::new(limiter, tenant, other).transpose());
        Ok(Some(Self {
            key: constant.map(|tenant| bucket.key(tenant)),
            bucket,
            cost: rule.cost.clone(),
            source,
            also: also.collect::<Result<_, _>>()?,
        }))
    }

    /// Returns the tenant of a request; `None` if it is absent, or the same for all requests.
    #[inline]
    pub(super) fn tenant<'a>(
        &self,
        head: Head<'a>,
        tenant: &Tenant,
        wiring: &Wiring,
    ) -> Option<Found<'a>> {
        if self.key.is_some() {
            return None;
        }
        let source = self.source.as_ref();
        let (tenant, wiring) = source.map_or((tenant, wiring), |(tenant, wiring)| (tenant, wiring));
        let found = tenant.find(head);
        wiring.on_tenant(TenantFound::of(found.as_ref().map(Found::as_str)));
        found
    }

    #[inline]
    pub(super) fn request<'a>(
        &'a self,
        head: Head<'a>,
        tenant: &Tenant,
        found: Option<&'a Found<'_>>,
    ) -> Request<'a> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head).max(1));
        let request = match &self.key {
            Some(key) => key.request(),
            None => Request::new(&self.bucket, found.map_or(DEFAULT_TENANT, Found::as_str)),
        };
        let source = self.source.as_ref().map_or(tenant, |(tenant, _)| tenant);
        match source.plan_of(head) {
            None => request.cost(cost),
            Some(plan) => request.cost(cost).plan(plan),
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut target = f.debug_struct("Target");
        target
            .field("bucket", &self.bucket)
            .field("has_cost", &self.cost.is_some())
            .finish()
    }
}
