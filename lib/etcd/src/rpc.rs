//! The requests of etcd's API: their answers, and which may be sent again after an answer was lost.
//! Messages are bytes below [`Call`], so that all requests share the code that sends them.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::error::Error;
use crate::wire;

/// Maximum size of one answer of the store, in bytes. A listing asks for fewer entries after a larger
/// one.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A request with its answer.
pub(crate) trait Rpc: Message {
    type Answer: Message + Default;
    const PATH: &'static str;
    /// Whether it may be sent again when its answer was lost, because it changes nothing or the same.
    const IS_REPEATABLE: bool;
}

macro_rules! unary {
    ($($request:ident => $answer:ident: $path:literal, $is_repeatable:literal;)*) => {$(
        impl Rpc for wire::$request {
            type Answer = wire::$answer;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
            const IS_REPEATABLE: bool = $is_repeatable;
        }
    )*};
}

unary! {
    AuthenticateRequest => AuthenticateResponse: "Auth/Authenticate", true;
    LeaseGrantRequest => LeaseGrantResponse: "Lease/LeaseGrant", false;
    // One message on a stream of its own, so that no answer can belong to an earlier one.
    LeaseKeepAliveRequest => LeaseKeepAliveResponse: "Lease/LeaseKeepAlive", true;
    LeaseRevokeRequest => LeaseRevokeResponse: "Lease/LeaseRevoke", false;
    RangeRequest => RangeResponse: "KV/Range", true;
    StatusRequest => StatusResponse: "Maintenance/Status", true;
    TxnRequest => TxnResponse: "KV/Txn", false;
}

/// An encoded request. A copy shares its bytes.
pub(crate) struct Call {
    path: &'static str,
    pub(crate) is_repeatable: bool,
    message: Bytes,
}

impl Call {
    pub(crate) fn of<R: Rpc>(request: &R) -> Self {
        Self {
            path: R::PATH,
            is_repeatable: R::IS_REPEATABLE,
            message: request.encode_to_vec().into(),
        }
    }

    /// Returns a request without metadata.
    pub(crate) fn request(&self) -> Request<Bytes> {
        Request::new(self.message.clone())
    }

    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        channel: Channel,
    ) -> Result<Bytes, Status> {
        let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        client
            .ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(self.path);
        let answer = client.unary(request, path, Encoded).await?;
        Ok(answer.into_inner())
    }
}

/// Decodes an answer. A change whose answer is malformed may have been applied.
pub(crate) fn decode<R: Rpc>(answer: Bytes) -> Result<R::Answer, Error> {
    R::Answer::decode(answer).map_err(|error| match R::IS_REPEATABLE {
        true => Error::invalid(error.to_string()),
        false => Error::Unknown {
            cause: format!("the answer is malformed: {error}"),
        },
    })
}

/// Takes messages as they are encoded.
#[derive(Clone, Copy, Debug)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
