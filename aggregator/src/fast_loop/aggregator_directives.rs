//! Directives for child aggregators: each is sent the share of what may pass here that follows from its
//! traffic, in the same form as a controller sends it.

use plimsoll_core::directive::{BucketDirective, KeyDirective, Posted, Terms, Values};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{Share, Sharing};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};

use super::client_directives::rounded;
use super::{Context, FastLoop};
use crate::downstream::{ChildAggregator, ChildAggregators, Shares};

/// The directive of one key before it is divided between child aggregators.
struct Undivided {
    tenant: Tenant,
    values: Values,
    slot: u32,
    allowed: Option<f64>,
    cap: Option<f64>,
}

impl FastLoop {
    /// Divides what may pass here between the clients, if there are any, and child aggregators. The shares of
    /// all hold until the next division, so that together they never exceed the whole. O(K A) for K slots and
    /// A child aggregators.
    pub(crate) fn divide_limits(&mut self, context: Context, aggregators: &mut ChildAggregators) {
        self.aggregator_rates.clear();
        if aggregators.by_instance.is_empty() {
            self.sharing = 1.0;
            self.client_shares = Shares::all(1.0);
            return;
        }
        let (now, parameters) = (context.now, self.parameters);
        let clients = f64::from(u8::from(context.clients > 0));
        let presences: Vec<f64> = aggregators.by_instance.values().map(|child| child.presence(now)).collect();
        let at_slot = |slot: usize| {
            let children = aggregators.by_instance.values().zip(&presences);
            let children = children.map(move |(child, presence)| Share {
                presence: *presence,
                offered: child.traffic.rate(slot),
            });
            (Sharing::of(children.clone()), children)
        };
        let by_slot: Vec<(Share, Sharing)> = (self.rates.iter().enumerate())
            .map(|(slot, rates)| {
                let own = Share { presence: clients, offered: rates.offered };
                let (of_children, children) = at_slot(slot);
                self.aggregator_rates.push(of_children.offered);
                (own, Sharing::of(children.chain([own])))
            })
            .collect();
        // Keys without known traffic are divided evenly.
        let unknown = |presence: f64| Share { presence, offered: 0.0 };
        let even = Sharing::of(presences.iter().copied().chain([clients]).map(unknown));
        self.sharing = even.presences.max(1.0);
        let own = by_slot.iter().map(|(own, all)| all.part(*own, &parameters));
        self.client_shares.fill(own, even.part(unknown(clients), &parameters));
        for (child, presence) in aggregators.by_instance.values_mut().zip(presences) {
            let rates: Vec<f64> = (0..by_slot.len()).map(|slot| child.traffic.rate(slot)).collect();
            let shares = rates
                .iter()
                .zip(&by_slot)
                .map(|(offered, (_, all))| all.part(Share { presence, offered: *offered }, &parameters));
            child.traffic.shares.fill(shares, even.part(unknown(presence), &parameters));
        }
    }

    /// The directive of a bucket for each child aggregator, in their order. While `withholds` is true after a
    /// restart, no holds are sent: the traffic by which they would be divided is not known yet.
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
        let presences = posted.terms().presences.unwrap_or(Presences::ONE).times(self.sharing);
        let each = aggregators.by_instance.values().map(|child| {
            let is_served = child.is_served(context.now, &self.parameters);
            let hold = match posted.terms().hold {
                Some(hold) if !withholds && is_divisible(limit) => {
                    hold_of(child, bucket, hold, is_served, &undivided)
                }
                _ => None,
            };
            let terms = Terms { presences: Some(presences), hold, clients: None, ..*posted.terms() };
            let keys = undivided.iter().map(|key| KeyDirective {
                tenant: key.tenant.clone(),
                values: if is_served || denied { key.share_of(child) } else { key.values.without_limit() },
            });
            BucketDirective { bucket: bucket.clone(), whole: true, terms, keys: keys.collect() }
        });
        each.collect()
    }

    fn undivided(&mut self, bucket: &Bucket, posted: &Posted, context: Context) -> Vec<Undivided> {
        let now = self.clock.on_grid(context.now).unwrap_or_default();
        let allowances = is_divisible(posted.terms().limit)
            .then(|| self.allowances(bucket, posted, Context { now, ..context }));
        let mut undivided = Vec::new();
        for (at, (tenant, values)) in posted.keys().enumerate() {
            let id = self.buckets.get(bucket).and_then(|keys| keys.by_tenant.get(tenant)).copied();
            let slot = self.slot_of(id);
            let (allowed, cap) = match &allowances {
                Some(allowances) => allowances.by_key.get(at).copied().unwrap_or_default(),
                // No limit, or a limit of zero.
                None => (values.rate.map(Rate::per_second), values.cap.map(Rate::per_second)),
            };
            let ratio = match allowed {
                Some(allowed) if allowances.as_ref().is_some_and(|allowances| allowances.by_rates) => {
                    self.ratio(slot, now, allowed).or(values.ratio)
                }
                _ => values.ratio,
            };
            let values = Values { ratio, guard: None, offered: None, ..values };
            undivided.push(Undivided { tenant: tenant.clone(), values, slot, allowed, cap });
        }
        undivided
    }

    /// The ratio over all requests offered here; `None` where they are too few.
    fn ratio(&mut self, slot: u32, now: MonoTime, allowed: f64) -> Option<DropRatio> {
        let parameters = self.parameters;
        let of_children = self.aggregator_rates.get(slot as usize).copied().unwrap_or_default();
        let own = self.rates.get_mut(slot as usize).map_or(0.0, |rates| rates.rate(now, &parameters));
        let offered = own + of_children;
        if offered.max(allowed) * parameters.window.as_secs_f64() < parameters.counts_min {
            return None;
        }
        Some(DropRatio::of_excess(Rate::new(offered).ok()?, Rate::new(allowed).ok()?))
    }
}

impl Undivided {
    fn share_of(&self, child: &ChildAggregator) -> Values {
        let share = child.traffic.shares.of(self.slot);
        let of = |whole: Option<f64>| whole.and_then(|whole| rounded(whole * share));
        Values { rate: of(self.allowed), cap: of(self.cap), ..self.values }
    }
}

/// Returns true if there is something to divide.
fn is_divisible(limit: Limit) -> bool {
    limit.per_second().is_some_and(|limit| limit > Rate::ZERO)
}

/// A child's part of the hold: its part of what may pass now. Before its traffic is known it keeps the hold
/// that it brought, or has an even part.
fn hold_of(
    child: &ChildAggregator,
    bucket: &Bucket,
    hold: Rate,
    is_served: bool,
    undivided: &[Undivided],
) -> Option<Rate> {
    let shares = &child.traffic.shares;
    if !is_served {
        let even = hold.per_second() * shares.without_slot;
        return (!child.held.contains(bucket)).then(|| rounded(even)).flatten();
    }
    let (mut whole, mut part) = (0.0, 0.0);
    for key in undivided {
        let allowed = key.allowed.unwrap_or_default();
        whole += allowed;
        part += allowed * shares.of(key.slot);
    }
    rounded(hold.per_second() * if whole > 0.0 { part / whole } else { shares.without_slot })
}
