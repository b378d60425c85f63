//! A caller of the rate limit service that is none of the project's own code: requests, and the client that sends them.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use http::uri::PathAndQuery;
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// A connection to a sidecar.
pub(super) struct Caller {
    runtime: Runtime,
    channel: Channel,
    client: RateLimitServiceClient<Channel>,
}

impl Caller {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        let client = RateLimitServiceClient::new(channel.clone());
        Self { runtime, channel, client }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The sidecar answers with an error.
    pub(super) fn ask(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.runtime.block_on(self.client.should_rate_limit(request)).map(tonic::Response::into_inner)
    }

    /// Calls another method than that of the service, at this path.
    pub(super) fn call(&self, path: &'static str) -> Status {
        let mut grpc = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
            let request = tonic::Request::new(request("shop", vec![descriptor(&[("to", "open")])]));
            grpc.unary(request, PathAndQuery::from_static(path), codec).await.unwrap_err()
        })
    }

    /// Sends a message whose stream never ends.
    pub(super) fn call_without_end(&self) -> Status {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let mut grpc = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
            let endless = tonic::Request::new(futures_util::stream::pending());
            grpc.client_streaming(endless, PathAndQuery::from_static(path), codec).await.unwrap_err()
        })
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

/// A descriptor with an addend of its own.
pub(super) fn with_addend(entries: &[(&str, &str)], addend: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: addend }), ..descriptor(entries) }
}

/// A descriptor with a limit of its own.
pub(super) fn with_limit(entries: &[(&str, &str)], requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..descriptor(entries) }
}

/// The code of each descriptor.
pub(super) fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(|status| status.code()).collect()
}

/// The value of a header field that the proxy is to add.
pub(super) fn field<'a>(fields: &'a [HeaderValue], name: &str) -> Option<&'a str> {
    fields.iter().find(|field| field.key == name).map(|field| field.value.as_str())
}

/// The names of the header fields that the proxy is to add.
pub(super) fn names(fields: &[HeaderValue]) -> Vec<&str> {
    fields.iter().map(|field| field.key.as_str()).collect()
}
