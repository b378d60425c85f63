//! Tests of the simulator through its public interface: scenarios in, figures out.

#[cfg(test)]
mod grid;
#[cfg(test)]
mod kill_claims;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod language;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tiers;
#[cfg(test)]
mod underadmission;

use std::path::Path;
use std::sync::Arc;

use plimsoll_policy::{Policy, Source};
use plimsoll_simulator::{Scenario, ScenarioError};

#[cfg(test)]
fn policy_of(policy: &str, tenants: &str) -> Arc<Policy> {
    let policy = Source {
        name: "policy.yaml",
        text: policy,
    };
    let tenants = Source {
        name: "tenants.yaml",
        text: tenants,
    };
    Arc::new(Policy::read(policy, tenants).unwrap().0)
}

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Ok(parse_all(text)?.swap_remove(0))
}

fn parse_all(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    Scenario::parse(
        Source {
            name: "test.yaml",
            text,
        },
        &folder,
    )
}
