//! Access to an admin port: callers present a token, and each route needs a role. Without a token, programs on this
//! machine are accepted if the operator allows it.

mod credential;
mod limiter;
mod local_caller;
mod quota_rights;
mod refusal;
mod role;
mod routes;
mod tokens;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, Method};
use axum::response::Response;
use plimsoll_tls::Certificates;

pub use self::quota_rights::{InvalidQuotaRights, QuotaRight, QuotaRights};
pub use self::refusal::Denied;
pub use self::role::{AdminCaller, Role};
pub use self::routes::{Needs, Route, Routes};
pub use self::tokens::{
    AdminTokens, TOKEN_FILE_BYTES_MAX, TOKEN_PREFIX, TOKEN_RANDOM_CHARS, TOKENS_MAX, Token,
    TokenFault, TokenFile, TokenFileError, TokenHash, TokensError, is_token,
};

use self::credential::Credential;
use self::refusal::{Needed, Refusal, Refusals};

/// The user of passwords that name none.
const ANY_USER: &str = "default";

/// The rules of the admin port of a process, and of its other ports that take the same tokens, with
/// the counts of what they refused. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Access {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Rules,
    refusals: Refusals,
}

/// The rules of an admin port. The default refuses every route that needs a role.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The certificates for TLS of the admin port; `None`: plaintext.
    pub certificates: Option<Certificates>,
    /// The accepted tokens; `None`: no token is accepted.
    pub tokens: Option<TokenFile>,
    /// True if programs on this machine are admins without a token.
    pub open_on_loopback: bool,
    /// True if `/metrics` needs a token, of any role.
    pub metrics_need_token: bool,
}

/// The entry of the tokens file, as it was, of the token that a connection presented.
#[derive(Clone, Debug)]
pub struct Accepted {
    token: Token,
}

impl Accepted {
    /// Returns the name of the token.
    pub fn name(&self) -> &str {
        self.token.name.as_str()
    }

    /// Returns true if the token has this right for a key at the Redis port of a quota server: by its
    /// own rights, or else by its role.
    pub fn has_right(&self, right: QuotaRight, key: &[u8]) -> bool {
        match &self.token.rights {
            Some(rights) => rights.allow(right, key),
            None => self.token.role.has_right(right),
        }
    }
}

impl Access {
    /// Begins with no refusals.
    pub fn new(rules: Rules) -> Self {
        let refusals = Refusals::default();
        Self {
            inner: Arc::new(Inner { rules, refusals }),
        }
    }

    /// Returns the tokens file; `None` if no token is accepted.
    pub fn tokens(&self) -> Option<&TokenFile> {
        self.inner.rules.tokens.as_ref()
    }

    /// Returns true if programs on this machine are admins without a token.
    pub fn is_open_on_loopback(&self) -> bool {
        self.inner.rules.open_on_loopback
    }

    /// Returns the certificates for TLS, unless the port is plaintext.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.inner.rules.certificates.as_ref()
    }

    fn metrics_need_token(&self) -> bool {
        self.inner.rules.metrics_need_token
    }

    /// Returns the refused requests by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.inner.refusals.counts()
    }

    fn admit(&self, needed: Role, request: &Request) -> Result<AdminCaller, Refusal> {
        let caller = self.identify(address(request), request)?;
        if caller.role >= needed {
            Ok(caller)
        } else {
            Err(Refusal::Role {
                name: caller.name,
                held: caller.role,
            })
        }
    }

    fn refuse(&self, needed: Role, request: &Request, refusal: &Refusal) -> Response {
        let of = (request.method().as_str(), request.uri().path());
        self.inner
            .refusals
            .answer(address(request), Needed::Role(needed), of, refusal)
            .into_response()
    }

    /// Checks that a request to another port has a token of any role: bare in the header `own`, or
    /// as `authorization: Bearer TOKEN`. So a proxy can present its token and hand on the
    /// credential of its caller.
    ///
    /// # Errors
    /// If it has none, with the answer. Counts and logs it like a request that an admin port
    /// refuses.
    pub fn check_token(
        &self,
        from: IpAddr,
        (method, path): (&Method, &str),
        headers: &HeaderMap,
        own: &HeaderName,
    ) -> Result<(), Denied> {
        let presented =
            Credential::of_header(headers, own).unwrap_or_else(|| Credential::of(headers));
        let found = match presented {
            _ if self.tokens().is_none() => Err(Refusal::Closed),
            Credential::Token(token) => self.find(token).map(drop),
            Credential::Malformed(fault) => Err(Refusal::Malformed(fault)),
            Credential::Nothing => Err(Refusal::NoToken),
        };
        let of = (method.as_str(), path);
        let refusals = &self.inner.refusals;
        found.map_err(|refusal| refusals.answer(from, Needed::Token(own), of, &refusal))
    }

    /// Checks the password of a connection to another port, which is a token of any role. A user
    /// that is given must be the name of the token, or `default`.
    ///
    /// # Errors
    /// If the token is not accepted, with the answer. Counts and logs it like a request that an
    /// admin port refuses.
    pub fn check_password(
        &self,
        from: IpAddr,
        user: Option<&str>,
        password: &str,
    ) -> Result<Accepted, Denied> {
        let found = self.find(password).and_then(|token| {
            let is_own = user.is_none_or(|user| user == ANY_USER || user == token.name.as_str());
            let accepted = is_own.then_some(Accepted { token });
            accepted.ok_or(Refusal::UnknownToken)
        });
        let refusals = &self.inner.refusals;
        found.map_err(|refusal| refusals.answer(from, Needed::Password, ("AUTH", ""), &refusal))
    }

    /// Returns the entry of a presented token.
    fn find(&self, token: &str) -> Result<Token, Refusal> {
        let tokens = self.tokens().ok_or(Refusal::Closed)?.tokens();
        tokens.find(token).cloned().ok_or(Refusal::UnknownToken)
    }

    /// Counts a command that an accepted token has no right to, logs it within bounds, and returns the error with its
    /// reason.
    pub fn deny_command(&self, from: IpAddr, command: &str, reason: String) -> String {
        self.inner
            .refusals
            .answer(from, Needed::Right, (command, ""), &Refusal::Right(reason))
            .error
    }

    /// Returns true if a token that a connection presented is accepted now, with the same name, role and rights.
    pub fn still_accepts(&self, accepted: &Accepted) -> bool {
        let tokens = self.tokens().map(TokenFile::tokens);
        tokens.is_some_and(|tokens| tokens.entries().contains(&accepted.token))
    }

    fn identify(&self, from: IpAddr, request: &Request) -> Result<AdminCaller, Refusal> {
        let rules = &self.inner.rules;
        let token = match Credential::of(request.headers()) {
            Credential::Token(token) => token,
            Credential::Malformed(fault) => return Err(Refusal::Malformed(fault)),
            Credential::Nothing if rules.open_on_loopback => {
                local_caller::check(request).map_err(Refusal::NotLocal)?;
                return Ok(AdminCaller {
                    name: AdminCaller::LOOPBACK.into(),
                    role: Role::Admin,
                    from,
                });
            }
            Credential::Nothing if rules.tokens.is_none() => return Err(Refusal::Closed),
            Credential::Nothing => return Err(Refusal::NoToken),
        };
        let Token { name, role, .. } = self.find(token)?;
        Ok(AdminCaller {
            name: name.as_str().into(),
            role,
            from,
        })
    }
}

/// Returns the address of the peer, which a server always adds.
fn address(request: &Request) -> IpAddr {
    let peer = request
        .extensions()
        .get()
        .map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| peer.ip());
    peer.unwrap_or(IpAddr::from([0, 0, 0, 0])).to_canonical()
}
