//! Names at their tenant limit: each has a drop ratio and a guard of its own, and its part of the limit if several zones
//! report it.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::directive::{KeyDirective, LIMITED_MAX, Posted, TailCut, Values};
use plimsoll_core::law::{parameters, tail};
use plimsoll_core::names::{Key, KeyId, Planned, Tenant, own_name};
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};

use super::Tails;
use crate::key_counts::{KeyCounts, Source};

/// A name is reported from this part of an even share of its limit between zones: with its rates in others it may exceed
/// the limit.
const REPORTED_FROM: f64 = 0.1;
/// A name is given a directive of its own from this part of its limit.
const DIRECTED_FROM: f64 = 0.9;
/// A name keeps its directive above this part: without the room between, clients would be told of it again and again.
const DIRECTED_ABOVE: f64 = 0.5;

#[derive(Debug, Default)]
pub(crate) struct LimitedNames {
    /// This zone's part of the limit of names that other zones report, too.
    parts: HashMap<Key, Rate>,
    /// By class, with the names that the latest report has.
    names: BTreeMap<KeyId, Vec<LimitedName>>,
}

#[derive(Debug)]
struct LimitedName {
    id: KeyId,
    tenant: Tenant,
    /// In requests/s, in this zone.
    limit: f64,
    state: LimitState,
}

/// The state of a name at the latest directives.
#[derive(Debug, Default, Clone, Copy)]
struct LimitState {
    /// It had a directive of its own.
    is_directed: bool,
    /// It exceeded its limit.
    is_cut: bool,
}

impl LimitedNames {
    pub(crate) fn set_parts(&mut self, parts: Vec<(Key, Rate)>) {
        self.parts = parts.into_iter().collect();
    }

    pub(super) fn close(&mut self, class: KeyId, id: KeyId) {
        if let Some(names) = self.names.get_mut(&class) {
            names.retain(|name| name.id != id);
        }
    }
}

impl Tails {
    /// Finds the names that may exceed their limit, at most [`LIMITED_MAX`], and returns them with their rates in
    /// requests/s. `limits` has the limit of each class that has one, and this zone's even share of it. Linear in the names
    /// if there is any.
    pub(crate) fn find_limited(
        &mut self,
        now: MonoTime,
        keys: &KeyCounts,
        limits: &HashMap<KeyId, (f64, f64)>,
    ) -> Vec<(Key, Rate)> {
        let before = std::mem::take(&mut self.limited.names);
        if limits.is_empty() {
            return Vec::new();
        }
        let names = keys.iter().filter_map(|(id, key, counted)| {
            let (limit, share) = *limits.get(&counted.line)?;
            let rate = self.rate(now, id)?;
            let is_near = counted.source == Source::Name && rate > REPORTED_FROM * share;
            is_near.then_some((rate / limit, id, key, counted.line, rate, limit))
        });
        let mut names: Vec<_> = names.collect();
        keep_highest(&mut names, LIMITED_MAX, |name| name.0);
        let state_of = |class: &KeyId, id: KeyId| {
            let mut names = before.get(class).into_iter().flatten();
            names.find(|name| name.id == id).map(|name| name.state)
        };
        let mut reported = Vec::with_capacity(names.len());
        for (_, id, key, class, rate, limit) in names {
            let Ok(tenant) = Tenant::new(own_name(key.tenant.as_str())) else {
                continue;
            };
            let key = in_class(key, &keys.lines.keys()[class.index()].tenant);
            let part = self.limited.parts.get(&key);
            let name = LimitedName {
                id,
                tenant,
                limit: part.map_or(limit, |part| part.per_second()),
                state: state_of(&class, id).unwrap_or_default(),
            };
            self.limited.names.entry(class).or_default().push(name);
            reported.extend(Rate::computed(rate).map(|rate| (key, rate)));
        }
        reported
    }

    /// The directives of a class's names that are near their limit: the bin of a rate is too coarse for these. `cut`
    /// applies to them as well, and other values are those of the class.
    pub(crate) fn limited(
        &mut self,
        now: MonoTime,
        class: KeyId,
        cut: &TailCut,
        of_class: Values,
    ) -> Vec<KeyDirective> {
        let mut names = self.limited.names.remove(&class).unwrap_or_default();
        let directives = names
            .iter_mut()
            .filter_map(|name| {
                let rate = self.rate(now, name.id)?;
                let before = name.state;
                let is_cut = tail::exceeds(rate, name.limit) || before.is_cut && rate > name.limit;
                let is_directed = match before.is_directed {
                    true => rate > DIRECTED_ABOVE * name.limit,
                    false => rate > DIRECTED_FROM * name.limit,
                };
                name.state = LimitState {
                    is_directed,
                    is_cut,
                };
                let (rate, limit) = Rate::computed(rate).zip(Rate::computed(name.limit))?;
                let of_limit = match is_cut {
                    true => DropRatio::of_excess(rate, limit),
                    false => DropRatio::NONE,
                };
                let established = self.standing(name.id).established;
                let (of_level, _) = cut.of_level().ratio_of(established, rate.per_second());
                let values = Values {
                    ratio: Some(of_limit.max(of_level)),
                    guard: Rate::computed(name.limit * parameters::SLACK_MIN),
                    offered: Some(rate),
                    at_tenant_limit: Some(is_cut && of_limit >= of_level),
                    ..of_class
                };
                is_directed.then(|| KeyDirective {
                    tenant: name.tenant.clone(),
                    values,
                })
            })
            .collect();
        self.limited.names.insert(class, names);
        directives
    }

    /// The rate of a name in requests/s; `None` before its requests tell it.
    pub(super) fn rate(&self, now: MonoTime, id: KeyId) -> Option<f64> {
        self.names
            .get(id.index())?
            .rate_at(now, self.report_interval)
    }
}

/// Keeps the `most` names for which `value` is highest, in any order.
pub(super) fn keep_highest<T>(names: &mut Vec<T>, most: usize, value: impl Fn(&T) -> f64) {
    if names.len() > most {
        names.select_nth_unstable_by(most, |one, other| value(other).total_cmp(&value(one)));
        names.truncate(most);
    }
}

/// Returns the key with the plan of its class in its name: the parent knows the limit by it, also where only the catalogue
/// has the plan.
pub(super) fn in_class(key: &Key, class: &Tenant) -> Key {
    let plan = class.plan().filter(|_| key.tenant.plan().is_none());
    let planned = plan.and_then(|plan| Planned::of(key.tenant.as_str(), plan));
    let tenant = planned.and_then(|name| Tenant::new(&name).ok());
    Key {
        bucket: key.bucket.clone(),
        tenant: tenant.unwrap_or_else(|| key.tenant.clone()),
    }
}

/// The limit of each class of a bucket that has one, and the even share of it in this zone.
pub(crate) fn limits_of(posted: &Posted) -> impl Iterator<Item = (&Tenant, (f64, f64))> {
    let presences = posted.terms().presences.map_or(1.0, |all| all.as_f64());
    posted.keys().filter_map(move |(tenant, values)| {
        let limit = values.entitlement?.tenant_limit?.per_second();
        let is_limited = tenant.is_class() && limit > 0.0;
        is_limited.then_some((tenant, (limit, limit / presences.max(1.0))))
    })
}
