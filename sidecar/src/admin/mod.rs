//! The admin port of a sidecar: metrics, health checks and `/status`.

mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::security::{Opened, SecurityStatus};
use plimsoll_admin::server;
use plimsoll_client::{Metrics, Status as LimiterStatus};
use plimsoll_core::stats::metrics::About;
use serde::Serialize;

use crate::limits::Limits;
use crate::rules::Reloads;
use crate::serve::Ports;
use crate::{http, rls};

#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) limits: Limits,
    pub(crate) reloads: Arc<Reloads>,
    pub(crate) ports: Ports,
    pub(crate) security: Opened,
    pub(crate) rls: Arc<rls::Counters>,
    pub(crate) http: Arc<http::Service>,
    /// True once the ports are open.
    pub(crate) is_open: Arc<AtomicBool>,
}

/// State of a sidecar at one moment.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Version of the sidecar.
    pub version: &'static str,
    /// Current rules.
    pub rules: RulesStatus,
    /// Limiter: its connection to the aggregators, and every bucket.
    pub limiter: LimiterStatus,
    /// Certificates and tokens.
    pub security: SecurityStatus,
}

/// Rules of a sidecar.
#[derive(Clone, Debug, Serialize)]
pub struct RulesStatus {
    /// Hash of the rules in use, as `plimsoll check` prints it.
    pub hash: String,
    /// Reason why the file on disk is not used; null if it is, and without a file.
    pub refused: Option<String>,
}

impl Sources {
    fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION"),
            rules: RulesStatus {
                hash: self.limits.in_force().rules.hash().to_string(),
                refused: self.reloads.refusal().map(|refusal| refusal.to_string()),
            },
            limiter: self.limits.limiter().status(),
            security: self.security.status(),
        }
    }
}

/// Returns the descriptions of all metrics of the admin port. Not part of the API.
#[doc(hidden)]
#[must_use]
pub fn described() -> Vec<About> {
    metrics::described()
}

pub(crate) fn routes(sources: Sources) -> Routes {
    let limiter = Metrics::new(sources.limits.limiter());
    let of_page = sources.clone();
    let page = move || metrics::page(&limiter, &of_page);
    let is_open = Arc::clone(&sources.is_open);
    let status = move || async move { Json(sources.status()) };
    server::routes(page, move || is_open.load(Ordering::Acquire)).viewer(
        Method::GET,
        "/status",
        status,
    )
}
