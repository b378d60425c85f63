//! A service whose tests prove its behavior under load. Run them with
//! `cargo test -p plimsoll-tower --example testing`, and the service with
//! `cargo run -p plimsoll-tower --example testing`.
//!
//! The service takes its limiter as an argument. A test gives it the limiter of a `ControlPlane` in
//! memory: without sockets, without sleeping, and with the same decisions in every run.

use std::error::Error;

use axum::Router;
use axum::routing::get;
use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, RulesError, Tenant};
use tokio::net::TcpListener;

/// Builds the routes of the shop behind a limiter.
fn shop(limiter: &Limiter) -> Result<Router, Box<dyn Error>> {
    let rules: Result<Rules, RulesError> = Rules::new(
        limiter,
        Tenant::header("x-tenant")?,
        [
            Rule::bucket("orders").path("/orders/{id}"),
            Rule::unlimited().path("/healthz"),
        ],
    );
    let layer = PlimsollLayer::new(rules?);
    let routes = Router::new()
        .route("/orders/{id}", get(async || "an order"))
        .route("/healthz", get(async || "ok"));
    Ok(routes.layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (limiter, feed) = Limiter::from_env("shop").build()?;
    let address = std::env::var("SHOP_LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stopped = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, shop(&limiter)?)
        .with_graceful_shutdown(stopped)
        .await?;
    let flushed = feed.shutdown().await;
    println!("stopped, {} decisions unreported", flushed.unreported);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use plimsoll_tower::Reason;
    use plimsoll_tower::testing::{ControlPlane, Decisions};
    use tower::ServiceExt;

    use super::*;

    /// Returns the status of a request by a tenant.
    async fn status(shop: &Router, path: &str, tenant: &str) -> StatusCode {
        let request = Request::get(path)
            .header("x-tenant", tenant)
            .body(Body::empty())
            .unwrap();
        shop.clone().oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn overload_never_refuses_the_health_check() {
        let plane = ControlPlane::new(7);
        let shop = shop(&plane.limiter()).unwrap();
        assert_eq!(status(&shop, "/orders/7", "acme").await, StatusCode::OK);

        plane.refuse("orders", Reason::ClusterOverload).unwrap();
        assert_eq!(
            status(&shop, "/orders/7", "acme").await,
            StatusCode::TOO_MANY_REQUESTS
        );
        assert_eq!(status(&shop, "/healthz", "acme").await, StatusCode::OK);
        let counted = Decisions {
            offered: 2,
            admitted: 1,
            refused: 1,
            would_refuse: 0,
        };
        assert_eq!(plane.counts("orders").unwrap(), counted);
    }

    #[tokio::test]
    async fn order_limits_need_no_real_waiting() {
        let plane = ControlPlane::new(7);
        plane.limit("orders", 10.0).unwrap();
        let shop = shop(&plane.limiter()).unwrap();
        let mut served = [0, 0];
        for second in &mut served {
            for _ in 0..15 {
                *second += u32::from(status(&shop, "/orders/7", "acme").await == StatusCode::OK);
            }
            plane.advance(Duration::from_secs(1));
        }
        assert_eq!(served, [10, 10]);
    }

    #[tokio::test]
    async fn one_seed_repeats_every_decision() {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let plane = ControlPlane::new(7);
            plane.drop_share("orders", 0.5).unwrap();
            let shop = shop(&plane.limiter()).unwrap();
            let mut statuses = Vec::new();
            for _ in 0..50 {
                statuses.push(status(&shop, "/orders/7", "acme").await);
            }
            runs.push(statuses);
        }
        assert_eq!(runs[0], runs[1]);
        assert!(
            runs[0].contains(&StatusCode::OK) && runs[0].contains(&StatusCode::TOO_MANY_REQUESTS)
        );
    }
}
