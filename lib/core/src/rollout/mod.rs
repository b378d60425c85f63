//! The rollout of enforcement: the canary cohort, and the gates between the stages.

pub mod gates;
pub mod query_gate;

pub use gates::{CanaryGate, ShadowGate};
pub use query_gate::Bound;

use crate::names::{Name, stable_hash};

/// A share in percent, in 0..=100.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(f64);

// Never NaN.
impl Eq for Percent {}

/// The canary cohort: a stable share of the instances, or of the keys of each instance, which carries refusals out
/// in canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cohort {
    /// The share of instances or keys.
    pub percent: Percent,
    /// The salt of the choice, so that each bucket has its canary on other instances.
    pub salt: u64,
}

impl Cohort {
    /// Returns the salt of a bucket until a rollout draws its own: the hash of its name.
    pub fn salt_of(bucket: &str) -> u64 {
        stable_hash(bucket.bytes())
    }

    /// Returns true if the instance with this stable name belongs to the cohort: the same answer after every
    /// restart, on every machine and in every version. An instance that belongs at one percentage belongs at
    /// every larger one.
    pub fn contains(self, instance: &Name) -> bool {
        self.contains_hash(instance.as_str().bytes())
    }

    /// Returns true if a tenant's key belongs to the cohort on an instance that divides its canary by key, as
    /// stable as for [instances](Self::contains). Each instance has other keys in it, and no key of one
    /// instance is tied to the instance's own side.
    pub fn contains_key(self, instance: &Name, tenant: &str) -> bool {
        // No name has a zero byte, so two pairs never read alike.
        self.contains_hash(instance.as_str().bytes().chain([0]).chain(tenant.bytes()))
    }

    fn contains_hash(self, bytes: impl Iterator<Item = u8>) -> bool {
        let hash = stable_hash(self.salt.to_le_bytes().into_iter().chain(bytes));
        let position = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        position * 100.0 < self.percent.get()
    }
}

// === impl Percent ===

impl Percent {
    /// The share of instances in a canary unless the policy sets one: 5 %.
    pub const CANARY_DEFAULT: Self = Self(5.0);

    /// Validates a share in percent; `None` outside 0..=100.
    pub fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0)
            .contains(&percent)
            .then_some(Self(percent + 0.0))
    }

    /// The share in percent.
    pub const fn get(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(percent: f64, salt: u64) -> f64 {
        let cohort = Cohort {
            percent: Percent::new(percent).unwrap(),
            salt,
        };
        let name = |i: u32| Name::new(&format!("shop-{}.eu-1a:8080", i)).unwrap();
        (0..1_000).filter(|i| cohort.contains(&name(*i))).count() as f64 / 10.0
    }

    #[test]
    fn the_cohort_has_the_configured_share() {
        for salt in 0..20 {
            for percent in [0.0, 1.0, 5.0, 25.0, 50.0, 99.0, 100.0] {
                // The share of 1,000 random choices: within 4 standard deviations.
                let slack = 4.0 * f64::sqrt(percent * (100.0 - percent) / 1_000.0);
                let got = share(percent, salt);
                assert!(
                    (got - percent).abs() <= slack,
                    "{percent} % with salt {salt}: {got} %"
                );
            }
        }
    }

    /// The choice is part of the protocol (`docs/reference/wire.md`): these positions were computed
    /// independently.
    #[test]
    fn known_positions_never_change() {
        for (salt, name, position) in [
            (0, "host-7:8080", 59.292_530),
            (1, "host-7:8080", 78.616_618),
            (u64::MAX, "host-7:8080", 34.730_456),
            (0, "a", 5.164_836),
            (0x0123_4567_89ab_cdef, "shop-0.eu-1a:8080", 41.708_653),
        ] {
            let contains = |percent| {
                let percent = Percent::new(percent).unwrap();
                Cohort { percent, salt }.contains(&Name::new(name).unwrap())
            };
            assert!(
                !contains(position) && contains(position + 2e-6),
                "{name} with salt {salt}"
            );
        }
    }

    #[test]
    fn instance_keys_have_the_configured_share() {
        let cohort = |percent, salt| Cohort {
            percent: Percent::new(percent).unwrap(),
            salt,
        };
        let name = |name| Name::new(name).unwrap();
        let (one, other) = (name("edge-1"), name("edge-2"));
        for salt in 0..20 {
            let members = |percent, instance| {
                let is_member =
                    move |i: &u32| cohort(percent, salt).contains_key(instance, &format!("t{i}"));
                (0..1_000).filter(is_member).collect::<Vec<_>>()
            };
            for percent in [0.0, 1.0, 5.0, 50.0, 99.0, 100.0] {
                let slack = 4.0 * f64::sqrt(percent * (100.0 - percent) / 1_000.0);
                let got = members(percent, &one).len() as f64 / 10.0;
                assert!(
                    (got - percent).abs() <= slack,
                    "{percent} % with salt {salt}: {got} %"
                );
            }
            let grown = members(20.0, &one);
            assert!(members(5.0, &one).iter().all(|key| grown.contains(key)));
            assert_ne!(
                members(20.0, &other),
                grown,
                "each instance has other keys in the cohort"
            );
        }
    }

    /// As for instances, these positions were computed independently.
    #[test]
    fn known_positions_of_keys_never_change() {
        for (salt, instance, tenant, position) in [
            (0, "edge-1", "acme", 39.813936),
            (1, "edge-1", "acme", 54.348911),
            (0, "edge-1", "default", 33.410106),
            (u64::MAX, "edge.eu-1a:7420", "globex", 48.776364),
        ] {
            let contains = |percent| {
                let percent = Percent::new(percent).unwrap();
                Cohort { percent, salt }.contains_key(&Name::new(instance).unwrap(), tenant)
            };
            assert!(
                !contains(position) && contains(position + 2e-6),
                "{tenant} on {instance} with salt {salt}"
            );
        }
    }

    #[test]
    fn cohort_members_stay_while_the_share_grows() {
        let cohort = |percent, salt| Cohort {
            percent: Percent::new(percent).unwrap(),
            salt,
        };
        let names: Vec<Name> = (0..300)
            .map(|i| Name::new(&format!("i{i}")).unwrap())
            .collect();
        assert!(
            names
                .iter()
                .all(|name| !cohort(5.0, 1).contains(name) || cohort(20.0, 1).contains(name))
        );
        assert!(
            names
                .iter()
                .any(|name| cohort(50.0, 1).contains(name) != cohort(50.0, 2).contains(name))
        );
    }
}
