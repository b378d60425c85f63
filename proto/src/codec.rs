//! How a parent reads and writes messages: reports by prost, directives from bytes that were encoded once for many.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use plimsoll_core::exchange::Parent;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder};

use crate::parent::ParentService;
use crate::wire::exchange_server::SERVICE_NAME;
use crate::{MESSAGE_BYTES_MAX, Part, wire};

/// What a stream sets aside for reading, and again for writing: most messages fit. It grows where one does not.
const BUFFER_BYTES: usize = 1_024;

/// The parent's end of `Exchange.Converse`.
#[derive(Clone, Copy, Debug, Default)]
struct ParentCodec;

/// Writes parts.
#[derive(Clone, Copy, Debug, Default)]
struct PartEncoder;

fn buffers() -> BufferSettings {
    // Nothing is gained by waiting for a second message: each leaves by itself.
    BufferSettings::new(BUFFER_BYTES, 1)
}

impl Codec for ParentCodec {
    type Encode = Part;
    type Decode = wire::Report;
    type Encoder = PartEncoder;
    type Decoder = ProstDecoder<wire::Report>;

    fn encoder(&mut self) -> PartEncoder {
        PartEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<wire::Report> {
        ProstCodec::<wire::Report, wire::Report>::raw_decoder(buffers())
    }
}

impl Encoder for PartEncoder {
    type Item = Part;
    type Error = Status;

    fn encode(&mut self, part: Part, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(part.encoded_len());
        part.encode(into);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// The one method of the service.
struct Converse<P>(ParentService<P>);

impl<P: Parent + Send + 'static> StreamingService<wire::Report> for Converse<P> {
    type Response = Part;
    type ResponseStream = ReceiverStream<Result<Part, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::Report>>) -> Self::Future {
        std::future::ready(Ok(Response::new(self.0.converse(request.into_inner()))))
    }
}

impl<P> NamedService for ParentService<P> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<P: Parent + Send + 'static> tower_service::Service<http::Request<Body>> for ParentService<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != "/plimsoll.exchange.v1.Exchange/Converse" {
            let status = Status::unimplemented("this service has one method, Converse");
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        let converse = Converse(self.clone());
        Box::pin(async move {
            let mut grpc = Grpc::new(ParentCodec)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(converse, request).await)
        })
    }
}
