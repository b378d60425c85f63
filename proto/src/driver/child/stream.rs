//! The opening of a stream: connects, verifies the parent, and waits for its answer.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use plimsoll_core::directive::Epoch;
#[cfg(feature = "tls")]
use plimsoll_core::exchange::authority;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use tower::service_fn;

use super::observer::StreamError;
use super::search::Candidate;
use super::traffic::Traffic;
use crate::driver::{EPOCH_METADATA, ZONE_METADATA, passed_while_running};
#[cfg(feature = "tls")]
use crate::transport::Mutual;
use crate::transport::{Dial, Duplex, Watched};
use crate::wire::exchange_client::ExchangeClient;
use crate::{MESSAGE_BYTES_MAX, wire};

/// Maximum time of a connection attempt to one address.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Maximum time to resolve a name, to connect and finish a handshake, and for the answer to a new stream, unless
/// the parent is one of several controllers. A parent that restarts may have thousands of children to answer first.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The first byte of an alert of TLS. No connection of HTTP/2 begins with it.
const TLS_ALERT: u8 = 0x15;

pub(super) struct Stream {
    pub(super) reports: mpsc::Sender<wire::Report>,
    pub(super) directives: Streaming<wire::Directives>,
    pub(super) candidate: Candidate,
    /// `None` for a controller.
    pub(super) parent_zone: Option<String>,
    /// The epoch of a controller that leads, as it answered the opening of the stream; `None` for an aggregator.
    pub(super) parent_epoch: Option<Epoch>,
    /// The certificate that the connection was opened with; `None` in plaintext.
    pub(super) certificate: Option<Certificate>,
}

#[derive(Clone, Copy)]
pub(super) struct Certificate {
    /// The number of the certificate among those that the files have held, from 1.
    pub(super) generation: u64,
    pub(super) not_after: std::time::SystemTime,
}

struct Connection {
    channel: Channel,
    certificate: Option<Certificate>,
    /// The first byte that the server sent.
    first: Arc<OnceLock<u8>>,
}

impl Stream {
    /// Connects and opens a stream. `greet` returns a report that travels with the request, which spares a busy parent
    /// a round trip.
    pub(super) async fn open(
        dial: &Dial,
        candidate: Candidate,
        traffic: Option<&Arc<Traffic>>,
        greet: impl FnOnce() -> Option<wire::Report>,
    ) -> Result<Self, StreamError> {
        let Connection {
            channel,
            certificate,
            first,
        } = answered(
            candidate.answer_max,
            Connection::open(dial, candidate.address, traffic),
        )
        .await?;
        let mut client = ExchangeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (reports, receiver) = mpsc::channel(1);
        if let Some(greeting) = greet() {
            reports.try_send(greeting).map_err(|_| StreamError::Ended)?;
        }
        let answer = async {
            client
                .converse(ReceiverStream::new(receiver))
                .await
                .map_err(|status| match first.get() {
                    Some(&TLS_ALERT) => StreamError::NeedsTls,
                    // A server of HTTP/1 closes the connection at the preface of HTTP/2, or answers in text.
                    None | Some(b'H') if status.source().is_some() => StreamError::NotGrpc {
                        authority: dial.authority(),
                        status: Box::new(status),
                    },
                    _ => StreamError::Closed(Box::new(status)),
                })
        };
        let answer = answered(candidate.answer_max, answer).await?;
        let metadata = |name| answer.metadata().get(name)?.to_str().ok();
        let parent_zone = metadata(ZONE_METADATA).map(str::to_owned);
        let parent_epoch = metadata(EPOCH_METADATA).and_then(|epoch| epoch.parse().ok());
        Ok(Self {
            reports,
            directives: answer.into_inner(),
            candidate,
            parent_zone,
            parent_epoch: parent_epoch.map(Epoch),
            certificate,
        })
    }
}

/// Waits for the parent, within a limit.
pub(super) async fn answered<T>(
    longest: Duration,
    answer: impl Future<Output = Result<T, StreamError>>,
) -> Result<T, StreamError> {
    tokio::select! {
        answer = answer => answer,
        () = passed_while_running(longest) => Err(StreamError::Silent(longest)),
    }
}

impl Connection {
    async fn open(
        dial: &Dial,
        address: SocketAddr,
        traffic: Option<&Arc<Traffic>>,
    ) -> Result<Self, StreamError> {
        let tcp = timeout(CONNECT_MAX, TcpStream::connect(address))
            .await
            .map_err(io::Error::from)??;
        tcp.set_nodelay(true)?;
        let bytes: Box<dyn Duplex> = match traffic {
            None => Box::new(tcp),
            Some(traffic) => Box::new(traffic.count(tcp)),
        };
        let (bytes, certificate) = handshake(dial, bytes).await?;
        let bytes = Watched::new(bytes);
        let first = bytes.first();
        // Used once: a connection that breaks is not replaced behind the back of the driver.
        let mut bytes = Some(TokioIo::new(bytes));
        let connector = service_fn(move |_: Uri| {
            let bytes = bytes
                .take()
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async { bytes }
        });
        let channel = dial
            .endpoint
            .connect_with_connector(connector)
            .await
            .map_err(io::Error::other)?;
        Ok(Self {
            channel,
            certificate,
            first,
        })
    }
}

/// Verifies the certificate of the parent, and that this process may take directives from it.
#[cfg(feature = "tls")]
async fn handshake(
    dial: &Dial,
    bytes: Box<dyn Duplex>,
) -> Result<(Box<dyn Duplex>, Option<Certificate>), StreamError> {
    let Some(Mutual {
        certificates,
        server,
    }) = &dial.mutual
    else {
        return Ok((bytes, None));
    };
    // Read before the configuration: a certificate that is renewed in between is taken for the older one.
    let health = certificates.health();
    let certificate = Certificate {
        generation: health.generation,
        not_after: health.not_after,
    };
    let (stream, peer) = plimsoll_tls::connect(certificates.child(), server.clone(), bytes).await?;
    authority::check_parent(&certificates.id(), &peer.id)?;
    Ok((Box::new(stream), Some(certificate)))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "a handshake waits, if there is one")]
async fn handshake(
    _: &Dial,
    bytes: Box<dyn Duplex>,
) -> Result<(Box<dyn Duplex>, Option<Certificate>), StreamError> {
    Ok((bytes, None))
}
