//! The directive of a bucket for one aggregator.

use plimsoll_core::decision::Coin;
use plimsoll_core::directive::{
    BucketDirective, ClassTerms, Entitlement, KeyDirective, Terms, Values,
};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;

use super::tenants::BucketTenant;
use super::{BucketState, Listing, Share};
use crate::aggregators::AggregatorKey;
use crate::state::DurableState;

impl BucketState {
    pub(crate) fn directive(
        &self,
        place: &AggregatorKey,
        policy: &Policy,
        durable: &DurableState,
    ) -> BucketDirective {
        let zone = self.zones.get(place);
        // Parts that were made for other tenants are void until the next tick.
        let sent = zone.filter(|zone| zone.parts.len() == self.tenants.len());
        let classes = self.tenants.classes().enumerate().map(|(at, (_, class))| {
            let new_share = sent.and_then(|zone| *zone.new_shares.get(at)?);
            let terms = ClassTerms {
                cut: None,
                new_share,
            };
            (class.name.clone(), terms)
        });
        let keys = self.tenants.iter().enumerate().map(|(at, tenant)| {
            let share = self.shares.get(at);
            let part = sent.and_then(|zone| zone.parts.get(at));
            let values = Values {
                ratio: part.and(share).and_then(|share| share.ratio),
                rate: part.and_then(|part| Rate::computed(part.rate)),
                cap: part.and_then(|part| Rate::computed(part.cap)),
                at_tenant_limit: part.and(share).map(|share| share.at_tenant_limit),
                entitlement: Some(self.entitlement(tenant, share, policy)),
                ..Values::default()
            };
            KeyDirective {
                tenant: tenant.name.clone(),
                values,
            }
        });
        let mut terms = Terms {
            named: self.listing == Listing::Exact,
            unlisted: None,
            limit: self.divided_limit(),
            mode: self.mode(durable),
            kill: durable.kill_of(&self.name),
            cohort: self.terms.cohort,
            coin: self.terms.coin,
            coherence: durable
                .coherence()
                .filter(|_| self.terms.coin == Coin::Coherent),
            presences: Some(self.presences),
            hold: zone.and_then(|zone| zone.hold).and_then(Rate::computed),
            headroom: sent.and_then(|zone| zone.headroom),
            quotas: Some(self.terms.quotas.clone()),
            ..Terms::default()
        };
        terms.set_classes(classes);
        BucketDirective {
            bucket: self.name.clone(),
            whole: true,
            terms,
            keys: keys.collect(),
        }
    }

    /// What the tenant is entitled to in an aggregator's own division, with the weight of the latest tick.
    fn entitlement(
        &self,
        tenant: &BucketTenant,
        share: Option<&Share>,
        policy: &Policy,
    ) -> Entitlement {
        let plain = policy.tenant(&tenant.name).weight;
        let raised = share.map_or(1.0, |share| share.weight / plain.get());
        let weight = if raised > 0.0 {
            plain.times(raised)
        } else {
            plain
        };
        Entitlement {
            weight,
            floor: tenant.floor,
            tenant_limit: tenant.limit,
            limit_owner: tenant.limit_owner,
        }
    }
}
