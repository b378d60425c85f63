//! The state of one connection, and the commands that affect only that state.

use std::net::{IpAddr, SocketAddr};

use plimsoll_admin::access::{Accepted, Access};

use super::commands::Fault;
use super::input::{
    ANONYMOUS_ARGUMENTS_MAX, ANONYMOUS_BYTES_MAX, ARGUMENTS_MAX, Bounds, COMMAND_BYTES_MAX,
};
use super::reply::{Reply, Version};

pub(super) const CLIENT_NAME_BYTES_MAX: usize = 128;
/// Redis version of this protocol; clients derive from it what they may send.
pub(super) const REDIS_VERSION: &str = "7.0.0";

pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
const NO_AUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                             RESP protocol version at the same time";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORDS: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                            sure your configuration is correct?";

#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: SocketAddr,
    pub(super) version: Version,
    name: Vec<u8>,
    needs_token: bool,
    pub(super) accepted: Option<Accepted>,
    /// True after too many wrong tokens: the connection has to be closed.
    pub(super) is_guessing: bool,
}

impl Session {
    pub(super) fn new(id: u64, peer: SocketAddr, needs_token: bool) -> Self {
        let version = Version::default();
        Self {
            id,
            peer,
            version,
            name: Vec::new(),
            needs_token,
            accepted: None,
            is_guessing: false,
        }
    }

    pub(super) const fn is_trusted(&self) -> bool {
        !self.needs_token || self.accepted.is_some()
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Returns true if the port needs a token and the client's was revoked or has other rights now, which
    /// ends the connection.
    pub(super) fn is_revoked(&self, access: &Access) -> bool {
        let accepted = self.accepted.as_ref().filter(|_| self.needs_token);
        accepted.is_some_and(|accepted| !access.still_accepts(accepted))
    }

    pub(super) const fn bounds(&self) -> Bounds {
        let (bytes, arguments) = if self.is_trusted() {
            (COMMAND_BYTES_MAX, ARGUMENTS_MAX)
        } else {
            (ANONYMOUS_BYTES_MAX, ANONYMOUS_ARGUMENTS_MAX)
        };
        Bounds { bytes, arguments }
    }

    pub(super) fn authenticate(
        &mut self,
        arguments: &[&[u8]],
        access: &Access,
    ) -> Result<Reply, String> {
        match arguments {
            [password] => self.check(None, password, access)?,
            [user, password] => self.check(Some(user), password, access)?,
            _ => return Err(Fault::Syntax.into()),
        }
        Ok(Reply::Simple("OK"))
    }

    fn check(
        &mut self,
        user: Option<&[u8]>,
        password: &[u8],
        access: &Access,
    ) -> Result<(), String> {
        if access.tokens().is_none() {
            return Err(NO_PASSWORDS.to_owned());
        }
        // Bytes that are not text are not a token.
        let user = user.map(|user| std::str::from_utf8(user).unwrap_or_default());
        let password = std::str::from_utf8(password).unwrap_or_default();
        match access.check_password(self.ip(), user, password) {
            Ok(accepted) => self.accepted = Some(accepted),
            Err(denied) if denied.is_limited() => {
                self.is_guessing = true;
                return Err(format!("ERR {}", denied.error));
            }
            Err(_) => return Err(WRONG_PASSWORD.to_owned()),
        }
        Ok(())
    }

    pub(super) fn hello(&mut self, arguments: &[&[u8]], access: &Access) -> Result<Reply, String> {
        let (version, mut options) = match arguments {
            [] => (self.version, arguments),
            [b"2", options @ ..] => (Version::Two, options),
            [b"3", options @ ..] => (Version::Three, options),
            _ => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
        let mut name = None;
        while let [option, rest @ ..] = options {
            options = match rest {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    self.check(Some(user), password, access)?;
                    rest
                }
                [given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(*given);
                    rest
                }
                _ => return Err(Fault::Syntax.into()),
            };
        }
        if !self.is_trusted() {
            return Err(NO_AUTH_HELLO.to_owned());
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        self.version = version;
        let text = |text: &str| Reply::Bulk(text.into());
        Ok(Reply::Map(vec![
            ("server", text("plimsoll")),
            ("version", text(REDIS_VERSION)),
            ("proto", Reply::Number(version as u64)),
            ("id", Reply::Number(self.id)),
            ("mode", text("standalone")),
            ("role", text("master")),
            ("modules", Reply::Array(Vec::new())),
        ]))
    }

    pub(super) fn client(&mut self, arguments: &[&[u8]]) -> Result<Reply, String> {
        let [subcommand, arguments @ ..] = arguments else {
            return Err(Fault::Syntax.into());
        };
        match (subcommand.to_ascii_uppercase().as_slice(), arguments) {
            (b"ID", []) => return Ok(Reply::Number(self.id)),
            (b"GETNAME", []) if self.name.is_empty() => return Ok(Reply::Null),
            (b"GETNAME", []) => return Ok(Reply::Bulk(self.name.clone())),
            (b"SETNAME", [name]) => self.set_name(name)?,
            // Client libraries send these without being asked.
            (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => {}
            (name, _) => {
                let name = super::batch::beginning(name);
                return Err(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'."
                ));
            }
        }
        Ok(Reply::Simple("OK"))
    }

    /// Answers `RESET`, which restores the initial state.
    pub(super) fn reset(&mut self) -> Reply {
        *self = Self::new(self.id, self.peer, self.needs_token);
        Reply::Simple("RESET")
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), String> {
        if name.len() > CLIENT_NAME_BYTES_MAX {
            return Err(format!(
                "ERR Client names have {CLIENT_NAME_BYTES_MAX} bytes at most"
            ));
        }
        if !name.iter().all(u8::is_ascii_graphic) {
            return Err(
                "ERR Client names cannot contain spaces, newlines or special characters."
                    .to_owned(),
            );
        }
        self.name = name.to_vec();
        Ok(())
    }
}
