//! The connection to one member of the store, which is opened at the first request, and again after
//! it broke.

use std::fmt;
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

/// Time between two pings of a connection with requests under way, so that a watch notices a dead
/// member. etcd closes connections with a ping in less than 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Member {
    endpoint: Endpoint,
    tls: Option<TlsFiles>,
    connect_timeout: Duration,
    uri: Uri,
    channel: Mutex<Channel>,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Member {
    pub(crate) fn new(
        endpoint: Endpoint,
        tls: Option<TlsFiles>,
        connect_timeout: Duration,
    ) -> Result<Self, AddressError> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{endpoint}")
            .parse()
            .map_err(|_| AddressError::Endpoint(endpoint.to_string()))?;
        Ok(Self {
            channel: Mutex::new(open(&uri, &endpoint, tls.as_ref(), connect_timeout)),
            endpoint,
            tls,
            connect_timeout,
            uri,
        })
    }

    pub(crate) fn channel(&self) -> Channel {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.clone()
    }

    /// Replaces a connection on which no answer arrived: the member may be reachable by a new one.
    pub(crate) fn reopen(&self) {
        let channel = open(
            &self.uri,
            &self.endpoint,
            self.tls.as_ref(),
            self.connect_timeout,
        );
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// Returns a channel that connects at its first request.
fn open(
    uri: &Uri,
    endpoint: &Endpoint,
    tls: Option<&TlsFiles>,
    connect_timeout: Duration,
) -> Channel {
    let (endpoint, tls) = (endpoint.clone(), tls.cloned());
    let connector = service_fn(move |_: Uri| {
        let (endpoint, tls) = (endpoint.clone(), tls.clone());
        async move {
            let connecting = connect(&endpoint, tls);
            let connected = timeout(connect_timeout, connecting).await;
            let late = format!("no connection within {} ms", connect_timeout.as_millis());
            connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, late))?
        }
    });
    transport::Endpoint::from(uri.clone())
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .connect_with_connector_lazy(connector)
}

async fn connect(
    endpoint: &Endpoint,
    tls: Option<TlsFiles>,
) -> io::Result<TokioIo<Pin<Box<dyn Duplex>>>> {
    let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
    tcp.set_nodelay(true)?;
    Ok(TokioIo::new(match tls {
        None => Box::pin(tcp),
        Some(files) => Box::pin(files.handshake(&endpoint.host, tcp).await?),
    }))
}
