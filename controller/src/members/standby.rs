//! A member that stands by: it tells aggregators where the leader is, shows the members, and takes kill orders for the
//! leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Route, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_admin::kill_api::{KillOn, KillOrder, KillState, KillStatus, ON, Tier};
use plimsoll_admin::ports::Ports;
use plimsoll_admin::security::Opened;
use plimsoll_admin::server as admin_server;
use plimsoll_proto::transport;
use tokio::sync::watch;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::{Membership, kill_orders, routes};
use crate::admin::openapi::{self, OPERATIONS};
use crate::admin::{Answer, Refused, console, metrics, refused, unavailable, with_valid_ttl};
use crate::{Args, Error, Listeners};

/// Between two looks for aggregators that seek the leader.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Serves both ports of a standby until `stop` is cancelled.
///
/// # Errors
/// When one of the servers fails.
pub(super) async fn serve(
    listeners: Listeners,
    args: &Args,
    security: &Opened,
    membership: &Membership,
    stop: CancellationToken,
) -> Result<(), Error> {
    let ports = Ports::new(args.pending_max);
    let (addresses, leader) = watch::channel(None);
    let asked = Arc::new(AtomicU64::new(0));
    let grpc = transport::serve_standby(
        listeners.grpc,
        ports.grpc.clone(),
        security.certificates().cloned(),
        leader,
        Arc::clone(&asked),
        stop.clone().cancelled_owned(),
    );
    let own = Routes::new().operator(Method::POST, ON, kill);
    let of_leader = OPERATIONS.iter().filter(|operation| !operation.is_of_all);
    let standby = of_leader.fold(own, |routes, operation| {
        let Route { method, path, .. } = operation.route.clone();
        routes.viewer(method, path, misdirected)
    });
    let standby = standby.with_state(membership.clone());
    let page = {
        let (membership, ports, security) = (membership.clone(), ports.clone(), security.clone());
        move || metrics::page_of_standby(&membership, &ports, &security)
    };
    let pages = admin_server::routes(page, || true)
        .merge(openapi::routes())
        .merge(console::assets(security))
        .merge(routes(Some(membership.clone())))
        .merge(standby);
    let access = security.access().clone();
    let admin = admin_server::serve(listeners.admin, ports.admin, access, pages, stop);
    let (mut part, own) = (membership.part.clone(), &membership.own);
    let follows = async {
        let mut looks = interval(LOOK_EVERY);
        let mut seen = 0;
        loop {
            let leader = part.borrow_and_update().other_leader().cloned();
            addresses.send_replace(leader.map(|leader| leader.address));
            tokio::select! {
                changed = part.changed() => if changed.is_err() { return },
                _ = looks.tick() => {
                    let now = asked.load(Ordering::Relaxed);
                    let sought = std::mem::replace(&mut seen, now) != now;
                    own.send_if_modified(|own| std::mem::replace(&mut own.sought, sought) != sought);
                }
            }
        }
    };
    tokio::select! {
        served = grpc => served?,
        () = admin => {}
        () = follows => {}
    }
    Ok(())
}

async fn misdirected(State(membership): State<Membership>) -> Refused {
    let leader = membership.part.borrow().other_leader().map_or_else(
        || "none leads at present".to_owned(),
        |leader| format!("{} leads", leader.admin),
    );
    let reason = format!(
        "this controller stands by, {leader}: give the addresses of all controllers, and the leader is found"
    );
    refused(StatusCode::MISDIRECTED_REQUEST, reason)
}

/// Takes a kill for the leader, which carries it out within a second, or as soon as there is one.
async fn kill(
    State(membership): State<Membership>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(order): JsonBody<KillOn>,
) -> Answer<Json<KillStatus>> {
    with_valid_ttl(&order)?;
    let bucket = order.bucket.clone();
    let command = kill_orders::append(&membership.client, &caller, order)
        .await
        .map_err(|error| {
            unavailable(format_args!(
                "not killed: this controller stands by, and {error}; ask the leader or an aggregator (--aggregator)"
            ))
        })?;
    let ordered = KillState {
        killed: true,
        command: Some(KillOrder::from(&command)),
        ..KillState::default()
    };
    let (fleet, buckets) = match bucket {
        None => (ordered, Vec::new()),
        Some(bucket) => (KillState::default(), vec![(bucket, ordered)]),
    };
    Ok(Json(KillStatus {
        tier: Tier::Controller,
        fleet,
        buckets: buckets.into_iter().collect(),
        in_shadow: Vec::new(),
        away: Vec::new(),
        killed_locally: 0,
        claims: Vec::new(),
        saved: true,
    }))
}
