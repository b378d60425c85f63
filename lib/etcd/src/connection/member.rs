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
use super::first_read::{FirstRead, Refusal};

/// Time between two pings of a connection with requests under way, so that a watch notices a dead
/// member. etcd closes connections with a ping in less than 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Member {
    target: Target,
    channel: Mutex<Channel>,
    refusal: Refusal,
}

/// What a connection needs.
#[derive(Clone)]
struct Target {
    endpoint: Endpoint,
    uri: Uri,
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
        let uri = format!("{scheme}://{endpoint}").parse();
        let target = Target {
            uri: uri.map_err(|_| AddressError::Endpoint(endpoint.to_string()))?,
            endpoint,
            tls,
            connect_timeout,
        };
        let refusal = Refusal::default();
        Ok(Self {
            channel: Mutex::new(target.open(&refusal)),
            target,
            refusal,
        })
    }

    pub(crate) fn channel(&self) -> Channel {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.clone()
    }

    /// Replaces a connection on which no answer arrived: the member may be reachable by a new one.
    pub(crate) fn reopen(&self) {
        let channel = self.target.open(&self.refusal);
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    /// Returns why the member has refused the certificate of this client, once. Other requests may be
    /// the ones that it refused, so this explains a failure, and is no proof that nothing was applied.
    pub(crate) fn take_refusal(&self) -> Option<String> {
        self.refusal.take()
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.endpoint.fmt(f)
    }
}

impl Target {
    /// Returns a channel that connects at its first request.
    fn open(&self, refusal: &Refusal) -> Channel {
        let (target, refusal) = (self.clone(), refusal.clone());
        let connector = service_fn(move |_: Uri| {
            let (target, refusal) = (target.clone(), refusal.clone());
            async move {
                let connected = timeout(target.connect_timeout, target.connect(refusal)).await;
                let ms = target.connect_timeout.as_millis();
                connected.map_err(|_| {
                    let late = format!("no connection within {ms} ms");
                    io::Error::new(io::ErrorKind::TimedOut, late)
                })?
            }
        });
        transport::Endpoint::from(self.uri.clone())
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .connect_with_connector_lazy(connector)
    }

    async fn connect(&self, refusal: Refusal) -> io::Result<TokioIo<Pin<Box<dyn Duplex>>>> {
        let Endpoint { host, port } = &self.endpoint;
        let tcp = TcpStream::connect((host.as_str(), *port)).await?;
        tcp.set_nodelay(true)?;
        Ok(TokioIo::new(match self.tls.clone() {
            None => Box::pin(tcp),
            Some(files) => {
                let stream = files.handshake(host, tcp).await?;
                Box::pin(FirstRead::new(stream, refusal))
            }
        }))
    }
}
