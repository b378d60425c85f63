//! The limiter of a sidecar with its current rules, which all its ports share.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use http::HeaderName;
use plimsoll_client::internals::Wiring;
use plimsoll_client::{BucketError, Limiter};
use plimsoll_tower::{RulesError, TenantError};

use crate::rules::{HttpTenant, Rules};

/// Limiter with its current rules. Clones share the state.
#[derive(Clone, Debug)]
pub struct Limits {
    limiter: Limiter,
    in_force: Arc<ArcSwap<InForce>>,
}

/// Rules bound to the limiter, also for requests over HTTP.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Current rules.
    pub rules: Rules,
    /// Source of the keys of requests over HTTP.
    pub http: Http,
    /// Wiring of the rate limit service.
    pub rls: Arc<Wiring>,
}

/// Source of the keys of requests of proxies over HTTP; JSON callers name theirs.
#[derive(Clone, Debug)]
pub enum Http {
    /// Headers name the bucket and the cost.
    Headers {
        /// Source of the tenant.
        tenant: HttpTenant,
        /// Header with the tenant's plan, if any.
        plan: Option<HeaderName>,
        /// Wiring of these requests.
        wiring: Arc<Wiring>,
    },
    /// Rules compare method and path.
    Rules(plimsoll_tower::Rules),
}

/// Reason why rules cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// The limiter has no room for a bucket.
    #[error("the rules do not fit the limiter: {0}")]
    Bucket(#[from] BucketError),
    /// The limiter has no room for a bucket of the rules for HTTP.
    #[error("the rules do not fit the limiter: {0}")]
    Rules(#[from] RulesError),
    /// The name of the tenant is invalid.
    #[error("http.tenant: {0}")]
    Tenant(#[from] TenantError),
}

impl Limits {
    /// Joins a limiter with rules, and declares every bucket of the rules, so that directives
    /// arrive before traffic.
    ///
    /// # Errors
    /// When the limiter has no room for a bucket, or the name of the tenant is invalid.
    pub fn new(limiter: Limiter, rules: Rules) -> Result<Self, LimitsError> {
        let in_force = InForce::bind(&limiter, rules)?;
        Ok(Self {
            limiter,
            in_force: Arc::new(ArcSwap::from_pointee(in_force)),
        })
    }

    /// Returns the limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns the current rules. Cheap: it takes no lock.
    #[must_use]
    pub fn in_force(&self) -> Guard<Arc<InForce>> {
        self.in_force.load()
    }

    /// Replaces the rules for all later requests.
    ///
    /// # Errors
    /// When the limiter has no room for a bucket, or the name of the tenant is invalid. The old rules
    /// then stay; buckets before that one are declared.
    pub fn replace(&self, rules: Rules) -> Result<(), LimitsError> {
        let in_force = InForce::bind(&self.limiter, rules)?;
        self.in_force.store(Arc::new(in_force));
        Ok(())
    }
}

impl InForce {
    fn bind(limiter: &Limiter, rules: Rules) -> Result<Self, LimitsError> {
        for bucket in rules.buckets() {
            limiter.bucket(bucket.as_str())?;
        }
        let tenant = rules.http().to_middleware()?;
        let http = match &rules.http().rules {
            None => Http::Headers {
                tenant: rules.http().tenant.clone(),
                plan: rules.http().plan.clone(),
                wiring: limiter.watch_wiring([], tenant.source()),
            },
            Some(list) => {
                let list = list.iter().cloned();
                let of_paths = plimsoll_tower::Rules::new(limiter, tenant, list)?;
                Http::Rules(if rules.http().ignore_case {
                    of_paths.ignore_case()
                } else {
                    of_paths
                })
            }
        };
        let tenants = rules.descriptor_tenants();
        let rls = limiter.watch_wiring(rules.descriptor_rules(), Some(tenants));
        Ok(Self { rules, http, rls })
    }
}
