//! A controller and one aggregator below it, for tests with scripted clients.

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::DurableState;
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Name, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Role};

use crate::policy_of;

const UPLINK: StreamId = StreamId(1_000_000);
pub(crate) const AGGREGATOR: u128 = 1_000_000;

pub(crate) struct Pair {
    pub(crate) brain: Brain,
    pub(crate) zone: Zone,
}

pub(crate) fn identity(role: Role, instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new(&format!("host:{instance}")).unwrap(),
        service: Name::new("shop").unwrap(),
        zone: ZoneName::new("a").unwrap(),
        role,
    }
}

impl Pair {
    /// Starts both; the controller believes as many decisions of a client as the aggregator.
    pub(crate) fn new(policy: &str, tenants: &str, bounds: Bounds) -> Self {
        let policy = policy_of(policy, tenants);
        let (state, parameters) = (DurableState::first_start(), Parameters::default());
        let brain = Brain::new(MonoTime::ZERO, InstanceId(1), state, policy, parameters)
            .with_decisions_per_s_max(bounds.decisions_per_s_max);
        let mut zone = Zone::new(identity(Role::Aggregator, AGGREGATOR), bounds, parameters);
        zone.on_open(MonoTime::ZERO);
        Self { brain, zone }
    }

    /// Sends a report up, advances the controller, and sends its directives down.
    pub(crate) fn roll_up(&mut self, now: MonoTime) {
        let report = self.zone.report(now);
        self.brain
            .on_report(now, UPLINK, report)
            .expect("the controller accepts every roll-up");
        self.brain.on_tick(now, 0);
        if let Some((number, _)) = self.brain.unsaved() {
            self.brain.on_saved(number);
        }
        if let Some(directives) = self.brain.directives(now, UPLINK) {
            self.zone.on_directives(now, directives).unwrap();
        }
    }
}
