//! A caller of the rate limit service that is none of the project's own code: requests, and the client that sends them.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::Channel;

/// A connection to a sidecar.
pub(super) struct Caller {
    runtime: Runtime,
    client: RateLimitServiceClient<Channel>,
}

impl Caller {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        let client = RateLimitServiceClient::new(channel);
        Self { runtime, client }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The sidecar answers with an error.
    pub(super) fn ask(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.runtime.block_on(self.client.should_rate_limit(request)).map(tonic::Response::into_inner)
    }

    /// Sends descriptors of the domain `shop`, which must be answered.
    pub(super) fn shop(&mut self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        self.ask(request("shop", descriptors)).unwrap()
    }
}

pub(super) fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

pub(super) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: None,
        ..Default::default()
    }
}

/// The code of each descriptor.
pub(super) fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(|status| status.code()).collect()
}

/// The value of a header field that the proxy is to add.
pub(super) fn field<'a>(fields: &'a [HeaderValue], name: &str) -> Option<&'a str> {
    fields.iter().find(|field| field.key == name).map(|field| field.value.as_str())
}
