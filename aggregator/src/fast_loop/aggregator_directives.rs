//! Directives for child aggregators: each is sent the share of what may pass here that follows from its
//! traffic, in the same form as a controller sends it.

use plimsoll_core::directive::{BucketDirective, Headroom, KeyDirective, Posted, Terms, Values};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{Sharing, ZoneSharer, parameters};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};

use super::allowances::{Allowances, is_divisible, offered, rounded};
use super::{Context, FastLoop};
use crate::downstream::{ChildAggregator, ChildAggregators, Shares};

/// The values of a bucket's keys and their rates, before they are divided between child aggregators.
struct Undivided {
    keys: Vec<(Tenant, Values)>,
    /// The rates to divide; `None` without a limit and for a limit of zero.
    allowances: Option<Allowances>,
}

impl FastLoop {
    /// Divides what may pass here between the clients, if there are any, and child aggregators. The shares of
    /// all hold until the next division, so that together they never exceed the whole. O(K A) for K slots and
    /// A child aggregators.
    pub(crate) fn divide_limits(&mut self, context: Context, aggregators: &mut ChildAggregators) {
        self.aggregator_rates.clear();
        self.divided_rates.clear();
        if aggregators.by_instance.is_empty() {
            self.sharing = 1.0;
            self.client_shares = Shares::all(1.0);
            return;
        }
        let now = context.now;
        let clients = f64::from(u8::from(context.clients > 0));
        let presences: Vec<f64> = aggregators
            .by_instance
            .values()
            .map(|child| child.presence(now))
            .collect();
        let at_slot = |slot: usize| {
            let children = aggregators.by_instance.values().zip(&presences);
            let children = children.map(move |(child, presence)| ZoneSharer {
                presence: *presence,
                offered: child.traffic.rate(slot),
            });
            (Sharing::of(children.clone()), children)
        };
        let by_slot: Vec<(ZoneSharer, Sharing)> = (self.rates.iter().enumerate())
            .map(|(slot, rates)| {
                let own = ZoneSharer {
                    presence: clients,
                    offered: rates.offered,
                };
                let (of_children, children) = at_slot(slot);
                self.aggregator_rates.push(of_children.offered);
                (own, Sharing::of(children.chain([own])))
            })
            .collect();
        // Keys without known traffic are divided evenly.
        let unknown = |presence: f64| ZoneSharer {
            presence,
            offered: 0.0,
        };
        let even = Sharing::of(presences.iter().copied().chain([clients]).map(unknown));
        self.divided_rates
            .extend(by_slot.iter().map(|(_, all)| all.offered));
        self.sharing = even.presences.max(1.0);
        let own = by_slot.iter().map(|(own, all)| all.part(*own));
        self.client_shares.fill(own, even.part(unknown(clients)));
        for (child, presence) in aggregators.by_instance.values_mut().zip(presences) {
            let rates: Vec<f64> = (0..by_slot.len())
                .map(|slot| child.traffic.rate(slot))
                .collect();
            let shares = rates.iter().zip(&by_slot).map(|(offered, (_, all))| {
                all.part(ZoneSharer {
                    presence,
                    offered: *offered,
                })
            });
            child
                .traffic
                .shares
                .fill(shares, even.part(unknown(presence)));
        }
    }

    /// The directive of a bucket for each child aggregator, in their order. While `withholds` is
    /// true after a restart, no holds are sent: the traffic that divides them is not known yet.
    pub(crate) fn directives_for_aggregators(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        context: Context,
        withholds: bool,
        aggregators: &ChildAggregators,
    ) -> Vec<BucketDirective> {
        let limit = posted.terms().limit;
        let denied = limit == Limit::PerSecond(Rate::ZERO);
        let undivided = self.undivided(bucket, posted, context);
        let presences = posted
            .terms()
            .presences
            .unwrap_or(Presences::ONE)
            .times(self.sharing);
        let each = aggregators.by_instance.values().map(|child| {
            let shares = &child.traffic.shares;
            let (mut hold, mut headroom) = (None, None);
            let is_served = child.is_served(context.now);
            if let Some(allowances) = &undivided.allowances {
                let of_all = shares.of_all(
                    allowances.by_key.iter().map(|key| key.slot),
                    &self.divided_rates,
                );
                // Before its traffic is known a child keeps the hold that it brought, or has an even part.
                let part = match is_served {
                    true => Some(allowances.part_of(shares, of_all)),
                    false => (!child.held.contains(bucket)).then_some(shares.without_slot),
                };
                hold = posted.terms().hold.filter(|_| !withholds);
                hold = hold
                    .zip(part)
                    .and_then(|(hold, part)| rounded(hold.per_second() * part));
                headroom = is_served.then(|| {
                    let part = allowances
                        .headroom
                        .and_then(|headroom| rounded(headroom * of_all));
                    part.map_or(Headroom::None, Headroom::Shared)
                });
            }
            let presences = Some(presences);
            let terms = Terms {
                presences,
                hold,
                headroom,
                clients: None,
                pool: None,
                ..posted.terms().clone()
            };
            let keys = if is_served || denied {
                undivided.shares_of(child)
            } else {
                let keys = undivided.keys.iter();
                keys.map(|(tenant, values)| KeyDirective {
                    tenant: tenant.clone(),
                    values: values.without_limit(),
                })
                .collect()
            };
            BucketDirective {
                bucket: bucket.clone(),
                whole: true,
                terms,
                keys,
            }
        });
        each.collect()
    }

    fn undivided(&mut self, bucket: &Bucket, posted: &Posted, context: Context) -> Undivided {
        let now = self.clock.on_grid(context.now).unwrap_or_default();
        if !is_divisible(posted.terms().limit) {
            let keys = posted
                .keys()
                .map(|(tenant, values)| (tenant.clone(), values))
                .collect();
            return Undivided {
                keys,
                allowances: None,
            };
        }
        let allowances = self.allowances(bucket, posted, Context { now, ..context });
        let keys = posted
            .keys()
            .zip(&allowances.by_key)
            .map(|((tenant, values), key)| {
                let ratio = match key.allowed {
                    // The ratio of a key below its limits follows from the traffic of each child.
                    Some(_)
                        if allowances.by_rates
                            && allowances.headroom.is_some()
                            && !key.at_tenant_limit =>
                    {
                        Some(DropRatio::NONE)
                    }
                    Some(allowed) if allowances.by_rates => {
                        self.ratio(key.slot, now, allowed).or(values.ratio)
                    }
                    _ => values.ratio,
                };
                let at_tenant_limit = Some(key.at_tenant_limit);
                (
                    tenant.clone(),
                    Values {
                        ratio,
                        guard: None,
                        offered: None,
                        at_tenant_limit,
                        ..values
                    },
                )
            });
        Undivided {
            keys: keys.collect(),
            allowances: Some(allowances),
        }
    }

    /// The ratio over all requests offered here; `None` where they are too few.
    fn ratio(&mut self, slot: u32, now: MonoTime, allowed: f64) -> Option<DropRatio> {
        let offered = offered(&mut self.rates, &self.aggregator_rates, slot, now);
        if offered.max(allowed) * parameters::WINDOW.as_secs_f64() < parameters::COUNTS_MIN {
            return None;
        }
        Some(DropRatio::of_excess(
            Rate::computed(offered)?,
            Rate::computed(allowed)?,
        ))
    }
}

impl Undivided {
    fn shares_of(&self, child: &ChildAggregator) -> Vec<KeyDirective> {
        let keys = self.keys.iter().enumerate().map(|(at, (tenant, values))| {
            let allowance = self
                .allowances
                .as_ref()
                .and_then(|allowances| allowances.by_key.get(at));
            let values = allowance.map_or(*values, |key| {
                let share = child.traffic.shares.of(key.slot);
                let of = |whole: Option<f64>| whole.and_then(|whole| rounded(whole * share));
                Values {
                    rate: of(key.allowed),
                    cap: of(key.cap),
                    ..*values
                }
            });
            KeyDirective {
                tenant: tenant.clone(),
                values,
            }
        });
        keys.collect()
    }
}
