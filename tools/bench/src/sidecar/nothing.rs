//! `plimsoll-bench nothing`: a tonic service and an axum handler that do nothing, for comparison
//! with the ports of a sidecar. They run on the same runtime as `plimsoll`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Server, TcpIncoming};
use tonic::{Request, Response, Status};

use crate::shutdown;

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

#[tonic::async_trait]
impl RateLimitService for Nothing {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            ..RateLimitResponse::default()
        }))
    }
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
        .add_service(RateLimitServiceServer::new(Nothing))
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
