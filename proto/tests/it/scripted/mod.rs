//! A scripted parent and child over real sockets, with an event for everything that a test may wait for.

mod child;
mod parent;
mod standby;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::report::{Identity, InstanceId, Role};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

pub(crate) use self::child::{ChildEvent, Running};
pub(crate) use self::parent::{ParentEvent, Server, greeting};
pub(crate) use self::standby::Standby;

/// Far longer than any step takes, so that a timeout means a failed test even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The epoch that every child holds.
const EPOCH: Epoch = Epoch(5);

pub(crate) async fn patiently<T>(event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .expect("the event did not happen in time")
}

/// Waits for the first event with a value from `pick`. Events before it are skipped.
pub(crate) async fn until<E: Debug, T>(
    events: &mut UnboundedReceiver<E>,
    mut pick: impl FnMut(E) -> Option<T>,
) -> T {
    patiently(async {
        loop {
            let event = events.recv().await.expect("the event source ended");
            if let Some(picked) = pick(event) {
                return picked;
            }
        }
    })
    .await
}

pub(crate) fn directive(limit: u32, tenants: usize) -> BucketDirective {
    let rate = Rate::new(f64::from(limit)).unwrap();
    let tenant = |number| Tenant::new(&format!("{number:0>128}")).unwrap();
    BucketDirective {
        bucket: Bucket::new("checkout").unwrap(),
        whole: true,
        terms: Terms {
            limit: Limit::PerSecond(rate),
            mode: Mode::Enforce,
            ..Terms::default()
        },
        keys: (0..tenants)
            .map(|number| KeyDirective {
                tenant: tenant(number),
                values: Values {
                    rate: Some(rate),
                    ..Values::default()
                },
            })
            .collect(),
    }
}

pub(crate) fn identity(instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new("host-7:8080").unwrap(),
        service: Name::new("checkout-api").unwrap(),
        zone: Zone::new("eu-west-1a").unwrap(),
        role: Role::Client,
    }
}

/// Checks that the health service at an address says that it serves.
pub(crate) async fn check_serving(uri: String) {
    let endpoint = Endpoint::from_shared(uri).unwrap();
    let channel = endpoint.connect().await.unwrap();
    for service in ["", "plimsoll.exchange.v1.Exchange"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = patiently(HealthClient::new(channel.clone()).check(request))
            .await
            .unwrap();
        let status = answer.into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service:?}");
    }
}

/// Returns a socket that accepts connections and never answers.
pub(crate) async fn mute() -> TcpListener {
    plimsoll_net::listen("--listen", SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap()
}
