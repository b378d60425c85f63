//! Tests of the brain with scripted aggregators.

mod admissions;
mod candidate;
mod coherent;
mod kills;
mod limits;
mod peers;
mod rollout;
mod scripted;
mod silence;
mod start;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::directive::{Board, Epoch};
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{InstanceId, Report, Role, Tally};
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source};

use super::*;
use scripted::{Fleet, Scripted, at, save};

const LIMIT: f64 = 1000.0;

pub(crate) fn policy_of(policy: &str, tenants: &str) -> Arc<Policy> {
    let [policy, tenants] = [("policy.yaml", policy), ("tenants.yaml", tenants)]
        .map(|(name, text)| Source { name, text });
    Arc::new(Policy::read(policy, tenants).unwrap().0)
}

pub(crate) fn policy(text: &str) -> Arc<Policy> {
    policy_of(text, ONE_CLASS_TENANTS)
}

fn enforced_with(more: &str) -> String {
    format!(
        "buckets: {{ api: {{ limit: 1000, mode: enforce{more} }} }}\nrollout: {{ require_gates: false }}\n"
    )
}

fn enforced() -> Arc<Policy> {
    policy(&enforced_with(""))
}

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn two_zones() -> Vec<Scripted> {
    vec![
        Scripted::new("a", 1).offering("acme", 2000.0),
        Scripted::new("b", 2).offering("acme", 2000.0),
    ]
}

fn settled(policy: Arc<Policy>) -> Fleet {
    let mut fleet = Fleet::new(policy, two_zones());
    fleet.run(20.0);
    fleet
}

#[track_caller]
fn check_near(got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance,
        "{got} is not {expected} +- {tolerance}"
    );
}
