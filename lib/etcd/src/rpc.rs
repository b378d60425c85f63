//! The requests of etcd's API: their answers, and which may be sent again after an answer was lost.

use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::wire;
use crate::wire::auth_client::AuthClient;
use crate::wire::kv_client::KvClient;
use crate::wire::lease_client::LeaseClient;
use crate::wire::maintenance_client::MaintenanceClient;

/// Maximum size of one answer of the store, in bytes. etcd splits events at 2 MiB, unless its
/// `--max-request-bytes` is raised.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A request with its answer.
pub(crate) trait Rpc: Clone + Send {
    type Answer: Send;
    /// Whether it may be sent again when its answer was lost.
    const IS_REPEATABLE: bool;

    fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;
}

macro_rules! unary {
    ($($request:ident => $answer:ident: $client:ident::$method:ident, $is_repeatable:literal;)*) => {$(
        impl Rpc for wire::$request {
            type Answer = wire::$answer;
            const IS_REPEATABLE: bool = $is_repeatable;

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                let client = $client::new(channel);
                let mut client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
                client.$method(request).await
            }
        }
    )*};
}

unary! {
    AuthenticateRequest => AuthenticateResponse: AuthClient::authenticate, true;
    LeaseGrantRequest => LeaseGrantResponse: LeaseClient::lease_grant, false;
    LeaseRevokeRequest => LeaseRevokeResponse: LeaseClient::lease_revoke, false;
    RangeRequest => RangeResponse: KvClient::range, true;
    StatusRequest => StatusResponse: MaintenanceClient::status, true;
    TxnRequest => TxnResponse: KvClient::txn, false;
}

impl Rpc for wire::LeaseKeepAliveRequest {
    type Answer = wire::LeaseKeepAliveResponse;
    const IS_REPEATABLE: bool = true;

    /// Sends one message on a stream of its own, so that no answer can belong to an earlier one.
    async fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> Result<Response<Self::Answer>, Status> {
        let mut client = LeaseClient::new(channel);
        let mut answers = client
            .lease_keep_alive(request.map(tokio_stream::once))
            .await?;
        let answer = answers.get_mut().message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("the stream ended"))?;
        Ok(Response::new(answer))
    }
}
