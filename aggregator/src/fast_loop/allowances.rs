//! The rates that may pass of each key of a bucket in this zone, and the headroom that the keys share: as the
//! controller sent them, or from the hold while it is silent.

use plimsoll_core::directive::{Headroom, Posted, Values};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{Claimant, divide_hold};
use plimsoll_core::names::{Bucket, KeyId};
use plimsoll_core::quantity::{Limit, MonoTime, Rate};

use super::key_rates::KeyRates;
use super::{BucketKeys, Context, FastLoop, NO_SLOT};
use crate::downstream::Shares;

pub(super) struct Allowances {
    pub(super) on_hold: bool,
    /// True if ratios follow from the rates here, false if the directive sets them.
    pub(super) by_rates: bool,
    /// One per key with a directive, in their order.
    pub(super) by_key: Vec<Allowance>,
    /// Requests/s that all keys share; `None` in overload.
    pub(super) headroom: Option<f64>,
    /// Requests/s that may pass of all keys together; 0 in overload.
    pub(super) room: f64,
}

/// The rates of one key, in requests/s.
#[derive(Clone, Copy)]
pub(super) struct Allowance {
    pub(super) slot: u32,
    /// The allowed rate; on hold, the key may pass its part of the headroom on top.
    pub(super) allowed: Option<f64>,
    /// The rate of the guards of the key, before their slack.
    pub(super) cap: Option<f64>,
    /// True if the tenant limit stops the key, so that it has no part of the headroom.
    pub(super) at_tenant_limit: bool,
}

impl Allowances {
    /// The part of all that may pass which belongs to these shares of the keys; `of_all` is the share of the
    /// headroom.
    pub(super) fn part_of(&self, shares: &Shares, of_all: f64) -> f64 {
        let headroom = self.headroom.unwrap_or_default();
        let (mut whole, mut part) = (headroom, headroom * of_all);
        for key in &self.by_key {
            let rate = if self.headroom.is_some() {
                key.cap
            } else {
                key.allowed
            }
            .unwrap_or_default();
            whole += rate;
            part += rate * shares.of(key.slot);
        }
        if whole > 0.0 { part / whole } else { of_all }
    }
}

impl FastLoop {
    /// The rates of a bucket's keys: divided from the hold if the bucket is on hold and has one, else as sent.
    pub(super) fn allowances(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        context: Context,
    ) -> Allowances {
        self.find_slots(bucket, posted);
        let on_hold = self.is_on_hold(bucket, context.led);
        let terms = posted.terms();
        if let Some(hold) = terms.hold.filter(|_| on_hold) {
            return self.divide(bucket, posted, hold, context);
        }
        let slots = self.buckets.get(bucket).map_or(&[][..], |keys| &keys.slots);
        let by_key: Vec<Allowance> = posted
            .keys()
            .zip(slots)
            .map(|((_, values), slot)| Allowance {
                slot: *slot,
                allowed: values.rate.map(Rate::per_second),
                cap: values.cap.map(Rate::per_second),
                at_tenant_limit: values.at_tenant_limit.unwrap_or_default(),
            })
            .collect();
        let headroom = terms
            .headroom
            .and_then(Headroom::rate)
            .map(Rate::per_second);
        let caps = by_key.iter().filter_map(|key| key.cap).sum::<f64>();
        let room = headroom.map_or(0.0, |headroom| caps + headroom);
        Allowances {
            on_hold,
            by_rates: !on_hold,
            by_key,
            headroom,
            room,
        }
    }

    fn find_slots(&mut self, bucket: &Bucket, posted: &Posted) {
        debug_assert!(
            self.buckets.contains_key(bucket),
            "{bucket} has directives and no keys"
        );
        let Some(BucketKeys {
            by_tenant, slots, ..
        }) = self.buckets.get_mut(bucket)
        else {
            return;
        };
        slots.clear();
        slots.extend(
            posted
                .keys()
                .map(|(tenant, _)| by_tenant.get(tenant).copied().unwrap_or(NO_SLOT)),
        );
    }

    fn divide(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        hold: Rate,
        Context { now, at, .. }: Context,
    ) -> Allowances {
        let slots = self.buckets.get(bucket).map_or(&[][..], |keys| &keys.slots);
        let presences = posted.terms().presences.map_or(1.0, Presences::as_f64);
        let classes = posted.keys().zip(slots);
        let classes = classes.filter(|((tenant, _), _)| tenant.is_class());
        let floors = classes
            .map(|((_, values), slot)| self.tails.floors(at, KeyId(*slot), bounds(values).0));
        let floors: f64 = floors.sum();
        let fitting = (hold.per_second() / 2.0 / floors).min(1.0);
        let mut claimants: Vec<Claimant> = posted
            .keys()
            .zip(slots)
            .map(|((tenant, values), slot)| {
                let offered = offered(&mut self.rates, &self.aggregator_rates, *slot, now);
                let (floor, tenant_limit) = bounds(values);
                let weight = weight(values);
                if !tenant.is_class() {
                    return Claimant {
                        offered,
                        weight,
                        floor,
                        tenant_limit,
                    };
                }
                // The floors of the names that are established here. `divide_hold` divides floors by the presences,
                // and these already are of this zone alone.
                let class = KeyId(*slot);
                let floors = self.tails.floors(at, class, floor) * fitting;
                let within = self.tails.within(at, class, tenant_limit);
                Claimant {
                    offered: offered * within,
                    weight,
                    floor: floors * presences,
                    tenant_limit: f64::INFINITY,
                }
            })
            .collect();
        let hold = hold.per_second();
        let (parts, headroom) = divide_hold(&mut self.division, hold, presences, &mut claimants);
        let by_key = parts.iter().zip(slots).map(|(part, slot)| Allowance {
            slot: *slot,
            allowed: Some(part.rate),
            cap: Some(part.rate),
            at_tenant_limit: part.at_tenant_limit,
        });
        let room = if headroom.is_some() { hold } else { 0.0 };
        Allowances {
            on_hold: true,
            by_rates: true,
            by_key: by_key.collect(),
            headroom,
            room,
        }
    }
}

/// The floor and the tenant limit of a key, in requests/s.
pub(super) fn bounds(values: Values) -> (f64, f64) {
    let entitlement = values.entitlement;
    let limit = entitlement.and_then(|entitlement| entitlement.tenant_limit);
    (
        entitlement.map_or(0.0, |entitlement| entitlement.floor.per_second()),
        limit.map_or(f64::INFINITY, Rate::per_second),
    )
}

/// The rate that a key is offered here and by the aggregators below, in requests/s.
pub(super) fn offered(rates: &mut [KeyRates], below: &[f64], slot: u32, now: MonoTime) -> f64 {
    let own = rates
        .get_mut(slot as usize)
        .map_or(0.0, |rates| rates.rate(now));
    own + below.get(slot as usize).copied().unwrap_or_default()
}

pub(super) fn weight(values: Values) -> f64 {
    values
        .entitlement
        .map_or(1.0, |entitlement| entitlement.weight.get())
}

pub(super) fn is_divisible(limit: Limit) -> bool {
    limit.per_second().is_some_and(|limit| limit > Rate::ZERO)
}

/// A rate in thousandths of requests/s, as directives carry it: a rate that fades towards zero
/// reaches it and is not sent forever.
pub(super) fn rounded(per_second: f64) -> Option<Rate> {
    Rate::computed((per_second * 1e3).round() / 1e3)
}
