//! Queries to Prometheus servers: limits that a policy takes from a query, and values for the query gates of
//! a rollout.

pub(crate) mod answer;
mod query;
pub(crate) mod query_task;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::Arc;

use reqwest::{Client, ClientBuilder, redirect};
use rustls::{ClientConfig, RootCertStore};

/// Returns a builder of clients for `http://` and `https://` that trust the certificates of the system,
/// follow no redirects and use no proxy.
///
/// A system without certificates is no error: `http://` works, and `https://` fails at the handshake.
pub(crate) fn http_client_builder() -> ClientBuilder {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read or parsed are left out, as browsers do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    trusting(roots)
}

/// Joins the causes of an error, without the URL, which may hold a secret.
pub(crate) fn causes_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason.push_str(&format!(": {error}"));
        cause = error.source();
    }
    reason
}

/// Returns a builder of clients for `http://`, or for a caller that sets certificates itself, that follow no redirects and
/// use no proxy.
pub fn untrusting_http_client_builder() -> ClientBuilder {
    trusting(RootCertStore::empty())
}

pub(super) fn trusting(roots: RootCertStore) -> ClientBuilder {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    match ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions() {
        Ok(config) => {
            let config = config.with_root_certificates(roots).with_no_client_auth();
            builder.tls_backend_preconfigured(config)
        }
        Err(error) => {
            debug_assert!(false, "ring supports TLS 1.2 and 1.3: {error}");
            builder
        }
    }
}
