//! Sends a request to the current endpoint, and to the others if that one cannot answer. Only a
//! request that may be repeated is sent again after its answer was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use crate::connection::{AddressError, Endpoint, Member, Options, StoreAddress};
use crate::error::{Error, Failure};
use crate::rpc::{Call, Rpc, decode};
use crate::wire;

/// Maximum number of endpoints that share the time of a request; others have what is left.
const ATTEMPTS_IN_TIME: u32 = 3;

/// A client of a store. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    prefix: Bytes,
    members: Vec<Member>,
    /// Index of the member that gets the next request.
    current: AtomicUsize,
    options: Options,
    /// `None` until the first request authenticates, and after a refusal of the token.
    token: Mutex<Option<Token>>,
}

/// What follows from the credentials: a token, or none if the store asks for none.
type Token = Option<MetadataValue<Ascii>>;

impl Client {
    /// Makes a client within a Tokio runtime. Connects at the first request.
    ///
    /// # Errors
    /// If the scheme of the address does not fit the certificates in the options.
    pub fn connect(address: &StoreAddress, options: Options) -> Result<Self, AddressError> {
        let fault = match (address.is_encrypted, &options.tls) {
            (true, None) => "etcds:// needs certificates: give the file of an authority",
            (false, Some(_)) => "there are certificates for the store: write etcds://",
            _ => "",
        };
        if !fault.is_empty() {
            return Err(AddressError(format!(
                "the store address `{address}`: {fault}"
            )));
        }
        // Less than the whole time also with one endpoint: a request without a connection was not
        // sent, and one without an answer may have been.
        let connect_timeout = share(&options, address.endpoints.len().max(2));
        let member = |endpoint: &Endpoint| {
            Member::new(endpoint.clone(), options.tls.clone(), connect_timeout)
        };
        let members: Result<Vec<Member>, _> = address.endpoints.iter().map(member).collect();
        let shared = Shared {
            prefix: format!("{}/", address.prefix).into(),
            members: members?,
            current: AtomicUsize::new(0),
            options,
            token: Mutex::new(None),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn prefix(&self) -> &Bytes {
        &self.shared.prefix
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.shared.members
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.shared.options.request_timeout
    }

    /// Sends a request with a token, and once more if the token is refused.
    pub(crate) async fn call<R: Rpc>(&self, request: R) -> Result<R::Answer, Error> {
        let answer = self.answer(&Call::of(&request)).await?;
        decode::<R>(answer)
    }

    /// In a box: else each crate, and each part of it, that waits for an answer has all of this code
    /// again.
    fn answer<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Bytes, Error>> {
        Box::pin(async move {
            let deadline = self.deadline();
            let token = self.token(None, deadline).await?;
            let refused = match self.exchange(call, &token, deadline).await {
                Err(Failure::Token(error)) => error,
                answered => return answered.map_err(Failure::settled),
            };
            if self.shared.options.credentials.is_none() {
                return Err(refused);
            }
            let token = self.token(Some(&token), deadline).await?;
            let answered = self.exchange(call, &token, deadline).await;
            answered.map_err(Failure::settled)
        })
    }

    /// Sends a request to each endpoint until one answers.
    async fn exchange(
        &self,
        call: &Call,
        token: &Token,
        deadline: Instant,
    ) -> Result<Bytes, Failure> {
        let members = self.members();
        let first = self.shared.current.load(Ordering::Relaxed);
        let in_turn = members.iter().enumerate().cycle().skip(first);
        let (mut causes, mut has_no_leader) = (Vec::new(), false);
        for (index, member) in in_turn.take(members.len()) {
            let (now, name) = (Instant::now(), member.name());
            if now >= deadline {
                causes.push(format!("{name}: no time was left"));
                break;
            }
            // Else one silent member would use up the time of all. A change is not sent again, so it
            // has the whole time.
            let until = if call.is_repeatable {
                deadline.min(now + share(&self.shared.options, members.len()))
            } else {
                deadline
            };
            let request = with_token(call, token);
            let cause = match self.attempt(member, call, request, until).await {
                Err(Failure::NoLeader) => {
                    has_no_leader = true;
                    "no leader".to_owned()
                }
                Err(Failure::Unknown(cause) | Failure::Oversized(cause)) if !call.is_repeatable => {
                    self.leave(index);
                    let cause = format!("{name}: {cause}");
                    return Err(Failure::Final(Error::Unknown { cause }));
                }
                Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => cause,
                answered => return answered,
            };
            causes.push(format!("{name}: {cause}"));
            self.leave(index);
        }
        Err(if has_no_leader {
            Failure::NoLeader
        } else {
            Failure::Unavailable(causes.join("; "))
        })
    }

    /// Sends a request to one member. In a box for the same reason.
    pub(crate) fn attempt<'a>(
        &self,
        member: &'a Member,
        call: &'a Call,
        request: Request<Bytes>,
        until: Instant,
    ) -> BoxFuture<'a, Result<Bytes, Failure>> {
        Box::pin(async move {
            let failure = match timeout_at(until, call.send(request, member.channel())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => Failure::of(&status),
                Err(_) => Failure::Unknown("no answer in time".to_owned()),
            };
            if matches!(failure, Failure::Unknown(_)) {
                member.reopen();
            }
            Err(failure)
        })
    }

    /// Moves to the next endpoint, unless another request has moved already.
    fn leave(&self, index: usize) {
        let next = (index + 1) % self.shared.members.len();
        let current = &self.shared.current;
        let _ = current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the token of the credentials, another one than the refused one.
    async fn token(&self, refused: Option<&Token>, deadline: Instant) -> Result<Token, Error> {
        let Some(credentials) = &self.shared.options.credentials else {
            return Ok(None);
        };
        let locked = timeout_at(deadline, self.shared.token.lock()).await;
        let mut held = locked.map_err(|_| Error::Unreachable {
            causes: "no time was left to authenticate".to_owned(),
        })?;
        if let Some(token) = &*held
            && refused != Some(token)
        {
            return Ok(token.clone());
        }
        *held = None;
        let request = wire::AuthenticateRequest {
            name: credentials.user.clone(),
            password: credentials.password.clone(),
        };
        let token = match self.exchange(&Call::of(&request), &None, deadline).await {
            Ok(answer) => {
                let answer = decode::<wire::AuthenticateRequest>(answer)?;
                let token = MetadataValue::try_from(answer.token);
                let mut token = token.map_err(|_| Error::invalid("a malformed token"))?;
                // `Debug` hides it.
                token.set_sensitive(true);
                Some(token)
            }
            // As etcd's own clients: users may be prepared before the store asks for them.
            Err(Failure::Final(Error::Other { message, .. }))
                if message.contains("authentication is not enabled") =>
            {
                None
            }
            Err(failure) => return Err(failure.settled()),
        };
        *held = Some(token.clone());
        Ok(token)
    }
}

impl Failure {
    /// Returns the error of a request that is not sent again, and that changes nothing if its outcome
    /// is unknown: `exchange` has made [`Error::Unknown`] of a change's.
    pub(crate) fn settled(self) -> Error {
        match self {
            Self::Token(error) | Self::Final(error) => error,
            Self::NoLeader => Error::NoLeader,
            Self::Unavailable(causes) | Self::Unknown(causes) => Error::Unreachable { causes },
            Self::Oversized(cause) => Error::TooLarge {
                what: format!("the answer of the store is too large: {cause}"),
            },
        }
    }
}

/// Adds the token, and `hasleader`, with which a member that is cut off from its leader refuses the
/// request instead of waiting.
fn with_token(call: &Call, token: &Token) -> Request<Bytes> {
    let mut request = call.request();
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token.clone());
    }
    request
}

/// Returns the time that one of this many endpoints has to answer a read, or to connect.
fn share(options: &Options, endpoints: usize) -> Duration {
    let sharing = u32::try_from(endpoints).unwrap_or(u32::MAX);
    options.request_timeout / sharing.clamp(1, ATTEMPTS_IN_TIME)
}
