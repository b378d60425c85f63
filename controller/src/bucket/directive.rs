//! What an aggregator is told of a bucket.

use super::*;

impl Protected {
    /// The whole state of the bucket, as the aggregator at a place is told it.
    #[must_use]
    pub fn directive(&self, place: &Place, policy: &Policy, durable: &Durable) -> BucketDirective {
        let zone = self.zones.get(place);
        let led = zone.filter(|zone| zone.parts.len() == self.members.len());
        let rate = |rate: f64| Rate::new(rate).ok();
        let keys = self.members.iter().enumerate().map(|(at, member)| {
            let share = self.shares.get(at);
            let part = led.and_then(|zone| zone.parts.get(at));
            let values = Values {
                ratio: part.and(share).map(|share| share.ratio),
                rate: part.and_then(|part| rate(part.rate)),
                cap: part.and_then(|part| rate(part.cap)),
                entitlement: Some(self.entitlement(member, share, policy)),
                ..Values::default()
            };
            KeyDirective { tenant: member.tenant.clone(), values }
        });
        BucketDirective {
            bucket: self.name.clone(),
            whole: true,
            terms: Terms {
                limit: self.limit,
                mode: self.stage(durable),
                kill: durable.kill_of(&self.name),
                cohort: self.terms.cohort,
                coin: self.terms.coin,
                coherence: durable.coherence().filter(|_| self.terms.coin == Coin::Coherent),
                on_silence: self.terms.on_silence,
                presences: Some(self.presences),
                hold: zone.and_then(|zone| zone.hold).and_then(rate),
                clients: None,
            },
            keys: keys.collect(),
        }
    }

    fn entitlement(&self, member: &Member, share: Option<&Share>, policy: &Policy) -> Entitlement {
        let (weight, floor) = match self.terms.law {
            LawName::Proportional => (Weight::ONE, Rate::ZERO),
            LawName::Balanced => {
                let plain = policy.tenant(&member.tenant).weight();
                let now = share.map_or(1.0, |share| share.weight / plain.get());
                (if now > 0.0 { plain.times(now) } else { plain }, policy.fairness().min_floor())
            }
        };
        Entitlement {
            weight,
            floor,
            tenant_limit: self.terms.tenant_limit,
            declared: member.class != Class::Unlisted,
        }
    }
}
