//! Directives for clients: the ratio and the guard of each key, from the rates of the controller or the hold,
//! and the latest traffic.

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{
    BucketDirective, ClassTerms, Headroom, KeyDirective, NewShare, PoolDepth, Posted, TailCut,
    Terms, Values, ZonePool,
};
use plimsoll_core::law::{Guard, ZoneClaimant, divide_room, fast_ratio, parameters, tail};
use plimsoll_core::names::{Bucket, KeyId, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit, Rate};

use super::allowances::{Allowance, bounds, is_divisible, rounded, weight};
use super::headroom::BucketHeadroom;
use super::{Context, FastLoop};

const NO_POOL: ZonePool = ZonePool {
    rate: Headroom::None,
    offered: Rate::ZERO,
    depth: PoolDepth::MIN,
    burst: TokenCount::NONE,
};

impl FastLoop {
    /// The directive of a bucket for clients. O(K log K) for K keys with directives.
    pub(crate) fn directive(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        context: Context,
    ) -> BucketDirective {
        if !is_divisible(posted.terms().limit)
            && let Some(keys) = self.buckets.get_mut(bucket)
        {
            // Slots are reused by other keys; their counts do not belong to this bucket.
            for slot in keys.slots.drain(..) {
                self.tails.end_cut(KeyId(slot));
            }
            keys.headroom = BucketHeadroom::default();
        }
        let (keys, pool, cuts) = match posted.terms().limit {
            Limit::Unlimited | Limit::Unknown => (
                same_for_all(posted, Values::default()),
                NO_POOL,
                same_for_classes(posted, TailCut::default()),
            ),
            Limit::PerSecond(Rate::ZERO) => {
                let nothing = Some(Rate::ZERO);
                let ratio = Some(DropRatio::ALL);
                let values = Values {
                    ratio,
                    guard: nothing,
                    offered: nothing,
                    ..Values::default()
                };
                (
                    same_for_all(posted, values),
                    NO_POOL,
                    same_for_classes(posted, TailCut::NOTHING_PASSES),
                )
            }
            Limit::PerSecond(_) => {
                let now = self.clock.on_grid(context.now).unwrap_or_default();
                self.keys(bucket, posted, Context { now, ..context })
            }
        };
        let mut terms = Terms {
            presences: None,
            hold: None,
            headroom: None,
            clients: Some(context.clients),
            pool: Some(pool),
            ..posted.terms().clone()
        };
        terms.set_classes(cuts.into_iter().map(|(class, cut)| {
            let cut = Some(cut);
            let new_share = None;
            (class, ClassTerms { cut, new_share })
        }));
        BucketDirective {
            bucket: bucket.clone(),
            whole: true,
            terms,
            keys,
        }
    }

    /// Takes tokens for a client that has just joined, up to a depth that lets a burst of requests
    /// pass. `pool` is the zone's, which `clients` share. Returns `None` while there are too few.
    pub(crate) fn grant(
        &mut self,
        bucket: &Bucket,
        pool: &ZonePool,
        clients: u32,
    ) -> Option<TokenCount> {
        pool.rate.rate()?;
        let own = Guard::pool(pool, None, clients, TokenCount::NONE).depth;
        self.buckets
            .get_mut(bucket)?
            .headroom
            .grant(parameters::GRANT_DEPTH_REQUESTS - own.as_f64())
    }

    /// The directives of the keys of a bucket with a limit, the headroom pool of the clients, and the cut of each class
    /// of unlisted names.
    fn keys(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        context: Context,
    ) -> (Vec<KeyDirective>, ZonePool, Vec<(Tenant, TailCut)>) {
        let allowances = self.allowances(bucket, posted, context);
        // With child aggregators the clients have a share of what may pass, for their own traffic.
        let shares = &self.client_shares;
        let of_all = shares.of_all(
            allowances.by_key.iter().map(|key| key.slot),
            &self.divided_rates,
        );
        let headroom = allowances.headroom.map(|headroom| headroom * of_all);
        let room = allowances.room * allowances.part_of(shares, of_all);
        let by_key: Vec<Allowance> = allowances
            .by_key
            .iter()
            .map(|key| {
                let share = shares.of(key.slot);
                let of = |rate: Option<f64>| rate.map(|rate| rate * share);
                Allowance {
                    allowed: of(key.allowed),
                    cap: of(key.cap),
                    ..*key
                }
            })
            .collect();
        // Requests above the tenant limits of unlisted names are refused in any case.
        let within: Vec<f64> = posted
            .keys()
            .zip(&by_key)
            .map(|((tenant, values), key)| match tenant.is_class() {
                true => {
                    let class = KeyId(key.slot);
                    self.tails.within(context.at, class, bounds(values).1)
                }
                false => 1.0,
            })
            .collect();
        let claimants: Vec<ZoneClaimant> = posted
            .keys()
            .zip(&by_key)
            .zip(&within)
            .map(|(((_, values), key), within)| {
                let rates = self
                    .rates
                    .get_mut(key.slot as usize)
                    .filter(|rates| rates.used);
                let offered = rates.map_or(0.0, |rates| rates.window.rate(context.now));
                ZoneClaimant {
                    offered: offered * within,
                    cap: key.cap.unwrap_or_default(),
                    stopped_at: key.allowed.filter(|_| key.at_tenant_limit),
                    weight: weight(values),
                }
            })
            .collect();
        let is_divided = allowances.by_rates && !allowances.on_hold && headroom.is_some();
        let divided = if is_divided {
            divide_room(&mut self.division, room, &claimants)
        } else {
            Vec::new()
        };
        let Some(bucket_keys) = self.buckets.get_mut(bucket) else {
            return (Vec::new(), NO_POOL, Vec::new());
        };
        let now_offered = claimants.iter().map(|claimant| claimant.offered).sum();
        let passes = bucket_keys
            .headroom
            .on_directive(context.now, room, now_offered);
        let (mut keys, mut offered_in_all) = (Vec::with_capacity(by_key.len()), 0.0);
        let (mut cuts, mut limited) = (Vec::new(), Vec::new());
        let each = posted.keys().zip(by_key).zip(within).enumerate();
        for (at, (((tenant, values), key), within)) in each {
            let may_share = headroom.filter(|_| !key.at_tenant_limit);
            let allowed = if is_divided {
                divided.get(at).copied()
            } else {
                key.allowed
                    .map(|allowed| allowed + may_share.unwrap_or_default())
            };
            let (window, offered, factor) = match self.rates.get_mut(key.slot as usize) {
                Some(rates) => {
                    rates.room = key.cap.unwrap_or_default() + headroom.unwrap_or_default();
                    let is_known =
                        rates.used && rates.young_until.is_none_or(|until| until <= context.now);
                    (
                        is_known.then_some(&mut rates.window),
                        rates.offered,
                        rates.slack.factor(),
                    )
                }
                None => (None, 0.0, parameters::SLACK_MIN),
            };
            offered_in_all += offered;
            let ratio = match allowed {
                Some(_) if allowances.by_rates && passes && may_share.is_some() => {
                    Some(DropRatio::NONE)
                }
                Some(allowed) if allowances.by_rates => Some(fast_ratio(
                    window,
                    context.now,
                    allowed / within,
                    allowances.on_hold,
                    values.ratio,
                )),
                _ => values.ratio,
            };
            let mut sent = Values {
                ratio,
                guard: key.cap.and_then(|cap| rounded(cap * factor)),
                offered: rounded(offered),
                at_tenant_limit: Some(key.at_tenant_limit),
                entitlement: values.entitlement.filter(|of| of.tenant_limit.is_some()),
                ..Values::default()
            };
            if tenant.is_class() {
                let (floor, tenant_limit) = bounds(values);
                let new_share = posted.terms().of_class(tenant.as_str()).new_share;
                let spread = tail::Spread {
                    new_share: new_share.map_or(1.0, NewShare::as_f64),
                    floor,
                    tenant_limit,
                };
                let ratio = match tenant_limit > 0.0 {
                    true => ratio,
                    false => Some(DropRatio::ALL),
                };
                let of_class = ratio.unwrap_or_default();
                let class = KeyId(key.slot);
                let (of_names, of_unknown) = self.tails.cut(context.at, class, of_class, &spread);
                sent.ratio = ratio.map(|_| of_unknown);
                let of_limited = Values {
                    entitlement: sent.entitlement,
                    ..Values::default()
                };
                limited.extend(self.tails.limited(context.at, class, &of_names, of_limited));
                cuts.push((tenant.clone(), of_names));
            }
            keys.push(KeyDirective {
                tenant: tenant.clone(),
                values: sent,
            });
        }
        let pool =
            bucket_keys
                .headroom
                .pool(headroom, offered_in_all, posted.terms(), self.sharing);
        if !limited.is_empty() {
            keys.extend(limited);
            keys.sort_by(|one, other| one.tenant.cmp(&other.tenant));
        }
        (keys, pool, cuts)
    }
}

fn same_for_classes(posted: &Posted, cut: TailCut) -> Vec<(Tenant, TailCut)> {
    posted
        .keys()
        .filter(|(tenant, _)| tenant.is_class())
        .map(|(tenant, _)| (tenant.clone(), cut))
        .collect()
}

fn same_for_all(posted: &Posted, values: Values) -> Vec<KeyDirective> {
    posted
        .keys()
        .map(|(tenant, _)| KeyDirective {
            tenant: tenant.clone(),
            values,
        })
        .collect()
}
