//! The state of one connection, and the commands that concern it alone.

use std::net::{IpAddr, SocketAddr};

use plimsoll_admin::access::{Accepted, Access};

use super::input::{ANONYMOUS, Bounds, TRUSTED};
use super::reply::{Reply, Version};

/// The bytes of the name of a connection, and of what its library says of itself, at most.
pub const CLIENT_NAME_BYTES_MAX: usize = 128;
/// The version of Redis whose protocol and entries of commands these are; clients derive from it what they may send.
pub(super) const REDIS_VERSION: &str = "7.0.0";

const NO_AUTH: &str = "NOAUTH Authentication required.";
const NO_AUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                             RESP protocol version at the same time";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORDS: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                            sure your configuration is correct?";

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: SocketAddr,
    pub(super) version: Version,
    name: Vec<u8>,
    library: [Vec<u8>; 2],
    needs_token: bool,
    accepted: Option<Accepted>,
    /// True once too many tokens were wrong.
    is_guessing: bool,
}

impl Session {
    pub(super) fn new(id: u64, peer: SocketAddr, needs_token: bool) -> Self {
        Self {
            id,
            peer,
            version: Version::default(),
            name: Vec::new(),
            library: Default::default(),
            needs_token,
            accepted: None,
            is_guessing: false,
        }
    }

    /// Returns true if the client may use buckets.
    pub(super) const fn is_trusted(&self) -> bool {
        !self.needs_token || self.accepted.is_some()
    }

    /// Returns the token that the client has presented.
    pub(super) const fn accepted(&self) -> Option<&Accepted> {
        self.accepted.as_ref()
    }

    /// Returns the address of the client.
    pub(super) fn ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Returns true if the connection has to be closed for its wrong tokens.
    pub(super) const fn is_guessing(&self) -> bool {
        self.is_guessing
    }

    /// Forgets a token that is accepted no longer, and returns true if that ends the connection.
    pub(super) fn is_revoked(&self, access: &Access) -> bool {
        let accepted = self.accepted.as_ref().filter(|_| self.needs_token);
        accepted.is_some_and(|accepted| !access.still_accepts(accepted))
    }

    /// The bounds of the next command.
    pub(super) const fn bounds(&self) -> Bounds {
        if self.is_trusted() { TRUSTED } else { ANONYMOUS }
    }

    /// The reply to every command but those that authenticate.
    pub(super) fn refusal() -> Reply {
        Reply::error(NO_AUTH)
    }

    /// Answers `AUTH [user] token`.
    pub(super) fn authenticate(&mut self, arguments: &[&[u8]], access: &Access) -> Reply {
        let (user, password) = match arguments {
            [password] => (None, *password),
            [user, password] => (Some(*user), *password),
            _ => return syntax_error(),
        };
        match self.check(user, password, access) {
            Ok(()) => Reply::Simple("OK"),
            Err(error) => error,
        }
    }

    fn check(&mut self, user: Option<&[u8]>, password: &[u8], access: &Access) -> Result<(), Reply> {
        if access.tokens().is_none() {
            return Err(Reply::error(NO_PASSWORDS));
        }
        // What is no text is no token.
        let user = user.map(|user| std::str::from_utf8(user).unwrap_or_default());
        let password = std::str::from_utf8(password).unwrap_or_default();
        match access.check_password(self.ip(), user, password) {
            Ok(accepted) => {
                self.accepted = Some(accepted);
                Ok(())
            }
            Err(denied) => {
                self.is_guessing = denied.is_limited();
                let text =
                    if self.is_guessing { format!("ERR {}", denied.error) } else { WRONG_PASSWORD.into() };
                Err(Reply::error(text))
            }
        }
    }

    /// Answers `HELLO [version [AUTH user token] [SETNAME name]]`.
    pub(super) fn hello(&mut self, arguments: &[&[u8]], access: &Access) -> Reply {
        let (version, mut options) = match arguments {
            [] => (self.version, arguments),
            [b"2", options @ ..] => (Version::Two, options),
            [b"3", options @ ..] => (Version::Three, options),
            _ => return Reply::error("NOPROTO unsupported protocol version"),
        };
        let mut name = None;
        while let [option, rest @ ..] = options {
            options = match rest {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    if let Err(error) = self.check(Some(user), password, access) {
                        return error;
                    }
                    rest
                }
                [given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(*given);
                    rest
                }
                _ => return syntax_error(),
            };
        }
        if !self.is_trusted() {
            return Reply::error(NO_AUTH_HELLO);
        }
        if let Some(error) = name.and_then(|name| self.set_name(name).err()) {
            return error;
        }
        self.version = version;
        let text = |text: &str| Reply::bulk(text);
        let protocol = if version == Version::Two { 2 } else { 3 };
        Reply::Map(vec![
            (text("server"), text("plimsoll")),
            (text("version"), text(REDIS_VERSION)),
            (text("proto"), Reply::Number(protocol)),
            (text("id"), self.id()),
            (text("mode"), text("standalone")),
            (text("role"), text("master")),
            (text("modules"), Reply::Array(Vec::new())),
        ])
    }

    /// Answers the subcommands of `CLIENT`.
    pub(super) fn client(&mut self, arguments: &[&[u8]]) -> Reply {
        let [subcommand, arguments @ ..] = arguments else { return syntax_error() };
        let subcommand = subcommand.to_ascii_uppercase();
        match (subcommand.as_slice(), arguments) {
            (b"ID", []) => self.id(),
            (b"GETNAME", []) if self.name.is_empty() => Reply::Null,
            (b"GETNAME", []) => Reply::bulk(self.name.clone()),
            (b"SETNAME", [name]) => self.set_name(name).err().unwrap_or(Reply::Simple("OK")),
            (b"SETINFO", [what, value]) => self.set_info(what, value),
            (b"INFO", []) => Reply::bulk(self.description()),
            (b"NO-EVICT" | b"NO-TOUCH", [state])
                if state.eq_ignore_ascii_case(b"ON") || state.eq_ignore_ascii_case(b"OFF") =>
            {
                Reply::Simple("OK")
            }
            (name, _) => Reply::error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try COMMAND DOCS CLIENT.",
                super::batch::beginning(name)
            )),
        }
    }

    /// Answers `RESET`: the connection is as at its beginning.
    pub(super) fn reset(&mut self) -> Reply {
        *self = Self::new(self.id, self.peer, self.needs_token);
        Reply::Simple("RESET")
    }

    fn id(&self) -> Reply {
        Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX))
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Reply> {
        self.name = checked(name, "Client names")?;
        Ok(())
    }

    fn set_info(&mut self, what: &[u8], value: &[u8]) -> Reply {
        let [library, version] = &mut self.library;
        let place = match what.to_ascii_uppercase().as_slice() {
            b"LIB-NAME" => library,
            b"LIB-VER" => version,
            _ => return Reply::error("ERR Unrecognized option"),
        };
        match checked(value, "Names and versions of libraries") {
            Ok(value) => {
                *place = value;
                Reply::Simple("OK")
            }
            Err(error) => error,
        }
    }

    fn description(&self) -> String {
        let [library, version] = self.library.each_ref().map(|text| String::from_utf8_lossy(text));
        let protocol = if self.version == Version::Two { 2 } else { 3 };
        let (id, peer, name) = (self.id, self.peer, String::from_utf8_lossy(&self.name));
        format!("id={id} addr={peer} name={name} db=0 resp={protocol} lib-name={library} lib-ver={version}\n")
    }
}

fn syntax_error() -> Reply {
    Reply::error("ERR Syntax error")
}

/// Checks a name of a connection or library: it may not break the line of a description.
fn checked(name: &[u8], what: &str) -> Result<Vec<u8>, Reply> {
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return Err(Reply::error(format!("ERR {what} have {CLIENT_NAME_BYTES_MAX} bytes at most")));
    }
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(Reply::error(format!(
            "ERR {what} cannot contain spaces, newlines or special characters."
        )));
    }
    Ok(name.to_vec())
}
