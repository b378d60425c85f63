//! A rule with its parts resolved, so that a request only compares.

use http::Method;
use plimsoll_client::internals::KeyHandle;
use plimsoll_client::{BucketHandle, Limiter};

use super::check::Checked;
use super::error::RulesError;
use super::pattern::PathPattern;
use super::readings::Reading;
use super::rule::Cost;
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
    /// The key of every request, where all requests have one tenant.
    pub(super) key: Option<KeyHandle>,
    cost: Option<Cost>,
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
        let target = match rule.bucket {
            None => None,
            Some(bucket) => {
                let bucket = limiter.bucket(&bucket);
                let bucket = bucket.map_err(|source| RulesError::Bucket { rule: name, source })?;
                bucket.prepare_responses();
                let key = tenant.constant.as_deref().map(|tenant| bucket.key(tenant));
                Some(Target {
                    bucket,
                    key,
                    cost: rule.cost,
                })
            }
        };
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
    #[inline]
    pub(super) fn cost(&self, request: Head<'_>) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(request).max(1))
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
