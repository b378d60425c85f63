//! The gRPC codec of a parent: decodes reports with prost and writes directives from bytes that are shared by
//! all children.

use std::convert::Infallible;
use std::task::{Context, Poll};

use plimsoll_core::exchange::Parent;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder};

use crate::driver::parent::ParentService;
use crate::driver::{EPOCH_METADATA, ZONE_METADATA};
use crate::transport::ConnectionGuard;
use crate::wire::exchange_server::SERVICE_NAME;
use crate::{MESSAGE_BYTES_MAX, MessagePart, wire};

/// The initial size of a stream's read buffer and of its write buffer, in bytes. Most messages fit; a buffer
/// grows for larger ones.
const BUFFER_BYTES: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct ParentCodec;

fn buffers() -> BufferSettings {
    // A yield threshold of 1 byte: each message is sent immediately instead of waiting for the next
    // one.
    BufferSettings::new(BUFFER_BYTES, 1)
}

impl Codec for ParentCodec {
    type Encode = MessagePart;
    type Decode = wire::Report;
    type Encoder = Self;
    type Decoder = ProstDecoder<wire::Report>;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> ProstDecoder<wire::Report> {
        ProstCodec::<wire::Report, wire::Report>::raw_decoder(buffers())
    }
}

impl Encoder for ParentCodec {
    type Item = MessagePart;
    type Error = Status;

    fn encode(&mut self, part: MessagePart, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(part.encoded_len());
        part.encode(into);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// `Converse`, the only method of the service.
impl<P: Parent + Send + 'static> StreamingService<wire::Report> for ParentService<P> {
    type Response = MessagePart;
    type ResponseStream = ReceiverStream<Result<MessagePart, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::Report>>) -> Self::Future {
        let guard = request.extensions().get::<ConnectionGuard>().cloned();
        if let Err(status) = self.admit(guard.as_ref()) {
            return std::future::ready(Err(status));
        }
        let mut response = Response::new(self.converse(request.into_inner(), guard));
        for (name, value) in [(ZONE_METADATA, &self.zone), (EPOCH_METADATA, &self.epoch)] {
            if let Some(value) = value {
                response.metadata_mut().insert(name, value.clone());
            }
        }
        std::future::ready(Ok(response))
    }
}

impl<P> NamedService for ParentService<P> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<P: Parent + Send + 'static> tower_service::Service<http::Request<Body>> for ParentService<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != "/plimsoll.exchange.v1.Exchange/Converse" {
            let status = Status::unimplemented("unknown method: this service has Converse only");
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        let converse = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ParentCodec)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(converse, request).await)
        })
    }
}
