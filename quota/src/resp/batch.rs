//! The commands that a connection has sent so far, read as one batch: operations for the engine, and replies that need
//! no bucket, in their order.

use bytes::BytesMut;
use plimsoll_admin::access::{Accepted, Access, QuotaRight};
use plimsoll_core::quota::QuotaTime;

use super::catalog;
use super::commands::{self, Asked, Entry, Fault, Kind, Least, Verb};
use super::counters::{Counted, Outcome, Tally};
use super::input::{self, Arguments};
use super::reply::{Reply, write_answer};
use super::session::Session;
use crate::leases::Leases;
use crate::operation::{Answer, Operation, Unavailable};

/// The commands of one batch, at most; further ones begin the next.
pub const COMMANDS_PER_BATCH_MAX: usize = 1_024;
/// The bytes of replies that end a batch.
pub const BATCH_REPLY_BYTES_MAX: usize = 64 * 1024;
/// The key by which the client library asks at its start whether the store answers, whatever keys its token is for.
const PROBE_KEY: &[u8] = b"{default}:plimsoll-start";
/// The bytes of a foreign command that an error repeats.
const REPEATED_BYTES_MAX: usize = 128;

/// What decides about commands, apart from their session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'r> {
    pub(super) access: &'r Access,
    pub(super) leases: &'r Leases,
    pub(super) time: QuotaTime,
    pub(super) at_ahead_max_ms: u64,
}

/// Commands that are answered together.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    /// The operations, whose answers come in the same order.
    pub(super) operations: Vec<Operation<'a>>,
    steps: Vec<Step>,
    /// The replies that need no bucket.
    said: BytesMut,
    /// The bytes of the commands.
    pub(super) length: usize,
    pub(super) end: End,
    tally: Tally,
    time: QuotaTime,
}

/// The source of the next reply.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next answer of the engine.
    Answer { counted: Counted, least: Least },
    /// The next bytes of what was said.
    Said { bytes: usize },
}

/// The reason why a batch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// No further command is whole.
    #[default]
    Read,
    /// The batch is full, and more may follow.
    Full,
    /// The client asks for figures of the server, of these sections, after the replies of the batch.
    Info(Vec<String>),
    /// The connection closes after the replies.
    Close,
}

impl<'a> Batch<'a> {
    /// Reads the commands at the start of `bytes`.
    pub(super) fn read(bytes: &'a [u8], session: &mut Session, rules: Rules<'_>) -> Self {
        let mut batch = Self { time: rules.time, ..Self::default() };
        let mut arguments = Arguments::new();
        while batch.end == End::Read {
            let rest = bytes.get(batch.length..).unwrap_or_default();
            match input::read(rest, session.bounds(), &mut arguments) {
                Ok(Some(length)) => {
                    batch.length += length;
                    if let [name, arguments @ ..] = arguments.as_slice() {
                        batch.follow(name, arguments, session, rules);
                    }
                }
                Ok(None) => return batch,
                Err(malformed) => {
                    batch.fail(session, format!("ERR {malformed}"));
                    batch.end = End::Close;
                }
            }
            let is_full =
                batch.steps.len() >= COMMANDS_PER_BATCH_MAX || batch.said.len() >= BATCH_REPLY_BYTES_MAX;
            if is_full && batch.end == End::Read {
                batch.end = End::Full;
            }
        }
        batch
    }

    /// Adds one command.
    fn follow(&mut self, name: &[u8], arguments: &[&'a [u8]], session: &mut Session, rules: Rules<'_>) {
        let Some(entry) = commands::entry(name) else {
            let text =
                if session.is_trusted() { Ok(unknown(name, arguments)) } else { Err(Session::refusal()) };
            return match text {
                Ok(text) => self.fail(session, text),
                Err(refusal) => self.say(refusal, Outcome::Error, session),
            };
        };
        let may_be_anonymous = matches!(entry.kind, Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset);
        if !may_be_anonymous && !session.is_trusted() {
            return self.say(Session::refusal(), Outcome::Error, session);
        }
        if !entry.takes(1 + arguments.len()) {
            return self.fail(session, format!("ERR {}", Fault::Count(entry.name)));
        }
        match ask(entry, arguments) {
            Some(Ok(asked)) => {
                let Asked { mut operation, counted, least } = asked;
                let admitted = admit(entry, &operation, session, rules).and_then(|()| {
                    at_quota_time(&mut operation, rules).map_err(|fault| format!("ERR {fault}"))
                });
                match admitted {
                    Ok(()) => {
                        self.operations.push(operation);
                        self.steps.push(Step::Answer { counted, least });
                    }
                    Err(text) => self.fail(session, text),
                }
            }
            Some(Err(fault)) => self.fail(session, format!("ERR {fault}")),
            None => self.answer(entry, arguments, session, rules.access),
        }
    }

    /// Notes what the batch took by the token of the session, which may give it back.
    pub(super) fn note_leases(
        &self,
        answers: &[Result<Answer, Unavailable>],
        session: &Session,
        leases: &Leases,
    ) {
        let Some(accepted) = session.accepted() else { return };
        for (operation, answer) in self.operations.iter().zip(answers) {
            if let (Operation::Take(demands), Ok(Answer::Taken(taken))) = (operation, answer) {
                for (demand, taken) in demands.iter().zip(taken) {
                    leases.note(accepted.name(), &demand.bucket, taken, self.time.ms);
                }
            }
        }
    }

    /// Answers a command that needs no bucket.
    fn answer(&mut self, entry: &Entry, arguments: &[&[u8]], session: &mut Session, access: &Access) {
        let reply = match (entry.kind, arguments) {
            (Kind::Ping, []) => Reply::Simple("PONG"),
            (Kind::Ping | Kind::Echo, [message]) => Reply::bulk(*message),
            (Kind::Select, [b"0"]) => Reply::Simple("OK"),
            (Kind::Select, _) => Reply::error("ERR DB index is out of range"),
            (Kind::Command, _) => {
                if let Some(whole) = catalog::whole(arguments, session.version) {
                    return self.say_written(whole);
                }
                catalog::describe(arguments)
            }
            (Kind::Client, _) => session.client(arguments),
            (Kind::Hello, _) => session.hello(arguments, access),
            (Kind::Auth, _) => session.authenticate(arguments, access),
            (Kind::Reset, _) => session.reset(),
            (Kind::Quit, _) => {
                self.end = End::Close;
                Reply::Simple("OK")
            }
            (Kind::Info, sections) => {
                let sections = sections.iter().map(|section| beginning(section).to_ascii_lowercase());
                self.end = End::Info(sections.collect());
                self.tally.add(Counted::Other, Outcome::Granted);
                return;
            }
            _ => Reply::error(format!("ERR {}", Fault::Count(entry.name))),
        };
        if session.is_guessing() {
            self.end = End::Close;
        }
        let outcome = if matches!(reply, Reply::Error(_)) { Outcome::Error } else { Outcome::Granted };
        self.say(reply, outcome, session);
    }

    fn fail(&mut self, session: &Session, text: String) {
        self.say(Reply::error(text), Outcome::Error, session);
    }

    fn say_written(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        self.tally.add(Counted::Other, Outcome::Granted);
        self.steps.push(Step::Said { bytes: bytes.len() });
    }

    fn say(&mut self, reply: Reply, outcome: Outcome, session: &Session) {
        let before = self.said.len();
        reply.write(session.version, &mut self.said);
        self.tally.add(Counted::Other, outcome);
        self.steps.push(Step::Said { bytes: self.said.len() - before });
    }

    /// Appends all replies to `out`, and returns the counts.
    pub(super) fn reply(mut self, answers: &[Result<Answer, Unavailable>], out: &mut BytesMut) -> Tally {
        let (mut answers, mut said) = (answers.iter(), self.said.as_ref());
        for step in self.steps {
            match step {
                Step::Said { bytes } => {
                    let (reply, rest) = said.split_at_checked(bytes).unwrap_or((said, &[]));
                    out.extend_from_slice(reply);
                    said = rest;
                }
                Step::Answer { counted, least } => {
                    // An engine that answers too few must not shift the replies of others to this command.
                    let answer = answers.next().unwrap_or(&Err(Unavailable::Store));
                    write_answer(answer, self.time, out);
                    self.tally.add(counted, outcome(answer, least));
                }
            }
        }
        self.tally
    }
}

/// Checks the rights of the token that the client has presented. One without a token has all of them.
fn admit(
    entry: &Entry,
    operation: &Operation<'_>,
    session: &Session,
    rules: Rules<'_>,
) -> Result<(), String> {
    let Some(accepted) = session.accepted() else { return Ok(()) };
    let right = match entry.kind {
        Kind::Bucket(Verb::Get, _) => QuotaRight::Read,
        Kind::Give => QuotaRight::Give,
        _ => QuotaRight::Take,
    };
    let may = |right| operation.keys().all(|key| key == PROBE_KEY || accepted.has_right(right, key));
    let Operation::Give { bucket, tokens } = operation else {
        return if may(right) { Ok(()) } else { Err(deny(entry, session, rules, right.as_str())) };
    };
    let is_allowed = may(QuotaRight::Reset)
        || may(right) && rules.leases.give(accepted.name(), bucket, *tokens, rules.time.ms);
    if is_allowed {
        Ok(())
    } else {
        Err(deny(entry, session, rules, "give, for what it took before the refill, or reset"))
    }
}

fn deny(entry: &Entry, session: &Session, rules: Rules<'_>, right: &str) -> String {
    let name = session.accepted().map_or("", Accepted::name);
    let reason = format!(
        "{} needs the right {right}, which the token `{name}` has not for this key: see the fourth field of its line in the \
         --tokens file",
        entry.name
    );
    format!("NOPERM {}", rules.access.deny_command(session.ip(), entry.name, reason))
}

/// Maps the time of the caller, by the wall clock, to that of the server.
fn at_quota_time(operation: &mut Operation<'_>, rules: Rules<'_>) -> Result<(), Fault> {
    if let Operation::Reduce { at_ms: Some(at_ms), .. } | Operation::Sessionize { at_ms: Some(at_ms), .. } =
        operation
    {
        let ahead_ms = at_ms.saturating_sub(rules.time.wall_ms());
        if ahead_ms > rules.at_ahead_max_ms {
            return Err(Fault::AtAhead { by_s: ahead_ms / 1_000, max_s: rules.at_ahead_max_ms / 1_000 });
        }
        *at_ms = rules.time.of_wall(*at_ms);
    }
    Ok(())
}

/// Reads the operation of a command; `None` for one that needs no bucket.
fn ask<'a>(entry: &Entry, arguments: &[&'a [u8]]) -> Option<Result<Asked<'a>, Fault>> {
    Some(match entry.kind {
        Kind::Bucket(verb, unit) => commands::peek_or_reduce(verb, unit, arguments),
        Kind::Take => commands::take(arguments),
        Kind::Throttle => commands::throttle(arguments),
        Kind::Give => commands::give(arguments),
        _ => return None,
    })
}

fn outcome(answer: &Result<Answer, Unavailable>, least: Least) -> Outcome {
    match answer {
        Ok(answer) if least.is_granted(answer) => Outcome::Granted,
        Ok(_) => Outcome::Refused,
        Err(Unavailable::Store) => Outcome::Unavailable,
        Err(Unavailable::Busy) => Outcome::Busy,
    }
}

/// Returns the error for a command that does not exist, in the words of Redis.
fn unknown(name: &[u8], arguments: &[&[u8]]) -> String {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", beginning(name));
    let end = text.len() + REPEATED_BYTES_MAX;
    for argument in arguments {
        if text.len() >= end {
            break;
        }
        text.push('\'');
        text.push_str(&beginning(argument));
        text.push_str("' ");
    }
    text
}

/// Returns the beginning of foreign bytes as text.
pub(super) fn beginning(bytes: &[u8]) -> String {
    let bytes = bytes.get(..REPEATED_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}
