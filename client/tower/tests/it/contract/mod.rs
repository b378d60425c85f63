//! The contract of refusals, checked by programs of independent parties: parsers of structured fields and of problem
//! documents, the gRPC library of Google, and curl.

mod grpc;
mod http;
mod python;

use std::net::SocketAddr;

use axum::Router;
use axum::routing::any;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::quantity::{DropRatio, Rate};
use plimsoll_tower::PlimsollLayer;
use tokio::net::TcpListener;

use crate::parent::{ALL, Fleet};

/// A bucket whose name uses every kind of character that names have.
const BUCKET: &str = "shop/eu-1:orders@v2.x_y";

/// Starts a limiter whose bucket, with a limit of 100 requests/s, refuses everything: the tenant `stopped` for its own
/// limit, `burst` by the guard, and others by the coin.
async fn refusing() -> Fleet {
    let fleet = Fleet::start(&[BUCKET]).await;
    let all = Values {
        ratio: DropRatio::new(ALL).ok(),
        ..Values::default()
    };
    let values = [
        (
            "burst",
            Values {
                guard: Rate::new(0.0).ok(),
                offered: Rate::new(1e12).ok(),
                ..Values::default()
            },
        ),
        ("default", all),
        (
            "stopped",
            Values {
                at_tenant_limit: Some(true),
                ..all
            },
        ),
    ];
    let terms = Terms {
        mode: Mode::Enforce,
        clients: Some(1_000_000),
        ..Terms::default()
    };
    fleet.direct_values(BUCKET, terms, &values).await;
    while fleet
        .limiter
        .check(&plimsoll_tower::Request::new(BUCKET, "burst"))
        .is_admit()
    {}
    fleet
}

/// Serves every path over HTTP/1, behind a layer.
async fn serve(layer: PlimsollLayer) -> SocketAddr {
    let app = Router::new().fallback(any(async || "served")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}
