//! `plimsoll-bench nothing`: a tonic service and an axum handler that do nothing, for comparison
//! with the ports of a sidecar. They run on the same runtime as `plimsoll`.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use axum::Router;
use axum::extract;
use axum::http::{self, StatusCode};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::transport::server::{Server, TcpIncoming};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::h2load::{RateLimitRequest, SHOULD_RATE_LIMIT};
use crate::shutdown;

/// `RateLimitResponse.Code.OK`
const OK: i32 = 1;

/// The arguments of `plimsoll-bench nothing`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Address that serves the rate limit service
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    rls: SocketAddr,
    /// Address that serves POST /v1/check and GET /nginx
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: SocketAddr,
}

#[derive(Debug)]
struct Nothing;

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

impl UnaryService<RateLimitRequest> for Nothing {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(Response::new(RateLimitResponse { overall_code: OK })))
    }
}

async fn should_rate_limit(request: extract::Request) -> http::Response<Body> {
    let codec = ProstCodec::<RateLimitResponse, RateLimitRequest>::default();
    Grpc::new(codec)
        .unary(Nothing, request.map(Body::new))
        .await
}

pub(crate) fn main(args: Args) -> ExitCode {
    tracing_subscriber::fmt()
        .json()
        .with_writer(std::io::stderr)
        .init();
    match shutdown::run_until_signal(|shutdown| run(args, shutdown)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let bind = async |address| {
        TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))
    };
    let (rls, http) = (bind(args.rls).await?, bind(args.http).await?);
    tracing::info!(listen = %rls.local_addr()?, http = %http.local_addr()?, "listening");
    let grpc = Server::builder()
        .add_routes(Routes::from(
            Router::new().route(SHOULD_RATE_LIMIT, post(should_rate_limit)),
        ))
        .serve_with_incoming(TcpIncoming::from(rls).with_nodelay(Some(true)));
    let router = Router::new()
        .route("/v1/check", post(async || StatusCode::OK))
        .route("/nginx", get(async || StatusCode::NO_CONTENT));
    let http = http.tap_io(|stream| {
        let _ = stream.set_nodelay(true); // a connection that ends already needs none
    });
    let http = axum::serve(http, router).into_future();
    tokio::select! {
        ended = grpc => ended.context("the rate limit service ended"),
        ended = http => ended.context("the HTTP port ended"),
        () = shutdown.cancelled() => Ok(()),
    }
}
