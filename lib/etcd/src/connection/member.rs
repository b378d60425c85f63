//! The connection to one member of the store, which is opened at the first request, and again after
//! it broke or a request had an unknown outcome.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{self, Channel};
use tower::service_fn;

use super::TlsFiles;
use super::address::{AddressError, Endpoint};

#[derive(Debug)]
pub(crate) struct Member {
    target: Target,
    uri: Uri,
    channel: Mutex<Channel>,
}

/// What a connection needs.
#[derive(Clone, Debug)]
struct Target {
    endpoint: Endpoint,
    tls: Option<TlsFiles>,
    connect_timeout: Duration,
}

trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

impl Member {
    pub(crate) fn new(
        endpoint: Endpoint,
        tls: Option<TlsFiles>,
        connect_timeout: Duration,
    ) -> Result<Self, AddressError> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let uri: Result<Uri, _> = format!("{scheme}://{endpoint}").parse();
        let uri =
            uri.map_err(|error| AddressError(format!("the endpoint `{endpoint}`: {error}")))?;
        let target = Target {
            endpoint,
            tls,
            connect_timeout,
        };
        Ok(Self {
            channel: Mutex::new(target.open(&uri)),
            target,
            uri,
        })
    }

    /// Returns the endpoint as `HOST:PORT`.
    pub(crate) fn name(&self) -> String {
        self.target.endpoint.to_string()
    }

    pub(crate) fn channel(&self) -> Channel {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.clone()
    }

    /// Replaces the connection after a request with an unknown outcome: the member may be reachable by
    /// a new one. Several such requests replace it several times; requests under way keep theirs.
    pub(crate) fn reopen(&self) {
        let channel = self.target.open(&self.uri);
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }
}

impl Target {
    /// Returns a channel that connects at its first request.
    fn open(&self, uri: &Uri) -> Channel {
        let target = self.clone();
        let connector = service_fn(move |_: Uri| {
            let target = target.clone();
            async move {
                let connected = timeout(target.connect_timeout, target.connect()).await;
                let ms = target.connect_timeout.as_millis();
                let late = |_| io::Error::other(format!("no connection within {ms} ms"));
                connected.map_err(late)?
            }
        });
        // Without pings: each request has a deadline that ends sooner than a ping would.
        transport::Endpoint::from(uri.clone()).connect_with_connector_lazy(connector)
    }

    async fn connect(&self) -> io::Result<TokioIo<Pin<Box<dyn Duplex>>>> {
        let Endpoint { host, port } = &self.endpoint;
        let tcp = TcpStream::connect((host.as_str(), *port)).await?;
        tcp.set_nodelay(true)?;
        Ok(TokioIo::new(match self.tls.clone() {
            None => Box::pin(tcp),
            Some(files) => Box::pin(files.handshake(host, tcp).await?),
        }))
    }
}
