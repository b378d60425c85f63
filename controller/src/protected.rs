//! One protected bucket: its limit, its law, what is offered to it, and the directive that follows.

use std::time::Duration;

use plimsoll_core::bucket::Bucket;
use plimsoll_core::directive::{BucketDirective, KeyDirective, Terms, Values};
use plimsoll_core::law::{Demand, Law, Proportional};
use plimsoll_core::policy::Policy;
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::rollout::Mode;

use crate::durable::Durable;

/// A bucket that the controller knows.
#[derive(Debug)]
pub struct Protected {
    name: Bucket,
    /// The entry of the policy it falls under, if any.
    entry: Option<String>,
    limit: Limit,
    law: Box<dyn Law + Send>,
    /// By tenant class.
    demands: Vec<Demand>,
    /// By tenant class; empty until the law was first applied.
    ratios: Vec<DropRatio>,
}

impl Protected {
    /// A bucket nothing is known of.
    #[must_use]
    pub fn new(name: Bucket) -> Self {
        Self {
            name,
            entry: None,
            limit: Limit::Unknown,
            law: Box::new(Proportional),
            demands: Vec::new(),
            ratios: Vec::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Bucket {
        &self.name
    }

    /// The entry of the policy it falls under.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// What it may admit over all zones.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// What is offered to it, by tenant class.
    #[must_use]
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// The drop ratios in force by tenant class; empty while there are none.
    #[must_use]
    pub fn ratios(&self) -> &[DropRatio] {
        &self.ratios
    }

    /// How far enforcement has come, before a kill is considered.
    #[must_use]
    pub fn stage(&self, durable: &Durable) -> Mode {
        let stage = self.entry.as_ref().and_then(|entry| durable.stages.get(entry));
        stage.map_or(Mode::Shadow, |stage| stage.stage)
    }

    /// Takes up the policy. The tenant classes may have changed, so ratios begin anew with the next tick.
    pub fn configure(&mut self, policy: &Policy) {
        self.entry = policy.entry(&self.name);
        self.limit = policy.bucket(&self.name).map_or(Limit::Unknown, |bucket| bucket.limit());
        self.demands.clear();
        self.ratios.clear();
    }

    pub(crate) fn clear_offered(&mut self, classes: usize) {
        self.demands.clear();
        self.demands.resize(classes, Demand { offered: Rate::ZERO });
    }

    pub(crate) fn add_offered(&mut self, class: usize, rate: f64) {
        // A rate that is no number adds nothing: what is held stays.
        if let (Some(demand), Ok(rate)) = (self.demands.get_mut(class), Rate::new(rate)) {
            demand.offered = demand.offered + rate;
        }
    }

    /// Applies the law to what is offered now, unless too little is known to lead.
    pub(crate) fn on_tick(&mut self, since_last: Duration, leading: bool) {
        match self.limit {
            Limit::PerSecond(limit) if leading => {
                self.law.on_tick(since_last, limit, &self.demands, &mut self.ratios);
            }
            _ => self.ratios.clear(),
        }
    }

    /// The whole state of the bucket, as children are told it.
    pub(crate) fn directive(&self, policy: &Policy, durable: &Durable) -> BucketDirective {
        let ratios = self.ratios.iter().copied().map(Some).chain(std::iter::repeat(None));
        let keys = policy
            .tenants()
            .zip(ratios)
            .map(|((tenant, _), ratio)| KeyDirective {
                tenant: tenant.clone(),
                values: Values { ratio, ..Values::default() },
            })
            .collect();
        BucketDirective {
            bucket: self.name.clone(),
            whole: true,
            terms: Terms { limit: self.limit, mode: self.stage(durable), ..Terms::default() },
            keys,
        }
    }
}
