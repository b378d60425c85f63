//! The state machines of the tiers, and the wire between them, as the targets use them.

use std::sync::Arc;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::Limiter;
use plimsoll_client::internals::Subscription;
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::DurableState;
use plimsoll_core::exchange::{Child, Parent, StreamId, StreamRejected};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Name, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source};
use plimsoll_proto::{DirectivesDecoder, ReportDecoder, ReportEncoder, encode_directives, wire};
use prost::Message as _;

/// Two buckets that enforce, so that a change of mode shows.
pub(super) const POLICY: &str = "guardrails: off\nbuckets:\n  checkout: { limit: 100, mode: enforce }\n  search: { limit: 50, mode: enforce }\n";

pub(super) const START: MonoTime = MonoTime::from_micros(1_000_000_000);

pub(super) fn identity(role: Role, instance: u128, zone: &str) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new(&format!("host:{instance}")).unwrap(),
        service: Name::new("shop").unwrap(),
        zone: ZoneName::new(zone).unwrap(),
        role,
    }
}

pub(super) fn policy(text: &str, tenants: &str) -> Option<Policy> {
    let source = |name, text| Source { name, text };
    Policy::read(source("policy.yaml", text), source("tenants.yaml", tenants))
        .ok()
        .map(|(policy, _)| policy)
}

pub(super) fn brain(now: MonoTime, policy: Policy, durable: DurableState) -> Brain {
    let mut brain = Brain::new(
        now,
        InstanceId(1),
        durable,
        Arc::new(policy),
        Parameters::default(),
    );
    save(&mut brain);
    brain
}

/// A restarted controller with [`POLICY`]: a controller that starts for the first time believes
/// more.
pub(super) fn plain_brain(now: MonoTime) -> Brain {
    let start = |durable| brain(now, policy(POLICY, ONE_CLASS_TENANTS).unwrap(), durable);
    let mut first = Brain::new(
        now,
        InstanceId(1),
        DurableState::first_start(),
        Arc::new(policy(POLICY, ONE_CLASS_TENANTS).unwrap()),
        Parameters::default(),
    );
    start(
        first
            .unsaved()
            .map_or_else(DurableState::first_start, |(_, durable)| durable),
    )
}

pub(super) fn save(brain: &mut Brain) {
    while let Some((number, durable)) = brain.unsaved() {
        let text = serde_json::to_vec(&durable).unwrap();
        let read: Result<DurableState, _> = serde_json::from_slice(&text);
        assert!(read.is_ok(), "a saved state is read again: {read:?}");
        brain.on_saved(number);
    }
}

pub(super) fn zone(instance: u128, name: &str) -> Zone {
    // Bounds that few inputs reach would hide the behaviour at them.
    let bounds = Bounds {
        children_max: 20,
        keys_max: 2_000,
        tenants_per_bucket_max: 200,
        ..Bounds::default()
    };
    Zone::new(
        identity(Role::Aggregator, instance, name),
        bounds,
        Parameters::default(),
    )
}

pub(super) fn client(instance: u128, zone: &str) -> (Limiter, Subscription) {
    Limiter::without_transport(identity(Role::Client, instance, zone), 256, 1, 7)
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: StreamId,
    pub(super) up: Vec<Vec<u8>>,
    pub(super) down: Vec<Vec<u8>>,
    encoder: ReportEncoder,
    reports: ReportDecoder,
    directives: DirectivesDecoder,
}

impl Link {
    pub(super) fn open(stream: u64, child: &mut impl Child, now: MonoTime) -> Self {
        child.on_open(now);
        Self {
            stream: StreamId(stream),
            up: Vec::new(),
            down: Vec::new(),
            encoder: ReportEncoder::default(),
            reports: ReportDecoder::default(),
            directives: DirectivesDecoder::default(),
        }
    }

    /// Carries a report up and the answers down.
    ///
    /// # Errors
    /// The parent refuses the report.
    pub(super) fn exchange(
        &mut self,
        child: &mut impl Child,
        parent: &mut impl Parent,
        now: MonoTime,
    ) -> Result<(), StreamRejected> {
        let report = child.report(now);
        for part in self.encoder.encode(&report) {
            let bytes = part.encode_to_vec();
            let part = wire::Report::decode(bytes.as_slice()).unwrap();
            self.up.push(bytes);
            let decoded = self
                .reports
                .decode(part)
                .unwrap_or_else(|error| panic!("{error}: {report:?}"));
            if let Some(decoded) = decoded {
                parent.on_report(now, self.stream, decoded)?;
            }
        }
        while let Some(message) = parent.message(now, self.stream) {
            for part in encode_directives(message) {
                let mut bytes = Vec::with_capacity(part.encoded_len());
                part.encode(&mut bytes);
                let part = wire::Directives::decode(bytes.as_slice()).unwrap();
                self.down.push(bytes);
                let decoded = self
                    .directives
                    .decode(part)
                    .unwrap_or_else(|error| panic!("{error}"));
                if let Some(directives) = decoded {
                    child
                        .on_directives(now, directives)
                        .unwrap_or_else(|stale| panic!("{stale:?}"));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn later(now: MonoTime, milliseconds: u64) -> MonoTime {
    MonoTime::from_micros(now.as_micros() + milliseconds * 1_000)
}
