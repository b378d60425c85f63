//! The commands that a connection has sent so far, read as one batch: operations for the engine, and replies that need
//! no bucket, in their order.

use bytes::BytesMut;
use plimsoll_admin::access::{Access, QuotaRight};
use plimsoll_core::quota::QuotaTime;

use super::commands::{self, ENTRIES, Entry, Fault, Kind};
use super::counters::{Counted, Outcome, Tally};
use super::input::{self, Arguments};
use super::reply::{Reply, write_answer};
use super::session::{NO_AUTH, Session};
use crate::leases::Leases;
use crate::operation::{Answer, Operation, Unavailable};

/// The commands of one batch, at most; further ones begin the next.
pub(super) const COMMANDS_PER_BATCH_MAX: usize = 1_024;
/// The bytes of replies that end a batch.
pub(super) const BATCH_REPLY_BYTES_MAX: usize = 64 * 1024;
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
    Answer(Counted),
    /// The next bytes of what was said.
    Said(usize),
}

/// The reason why a batch ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The next command is incomplete.
    #[default]
    Read,
    /// The batch is full, and more may follow.
    Full,
    /// The client asks for figures of the server, after the replies of the batch.
    Info,
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
                    batch.say(Err(format!("ERR {malformed}")), session);
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
        let entry = commands::find(name);
        let is_for_all =
            |entry: &Entry| matches!(entry.kind, Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset);
        if !session.is_trusted() && !entry.is_some_and(is_for_all) {
            return self.say(Err(NO_AUTH.to_owned()), session);
        }
        let Some(entry) = entry else { return self.say(Err(unknown(name, arguments)), session) };
        match operation(entry, arguments, session, rules) {
            Ok(Some(operation)) => {
                self.operations.push(operation);
                self.steps.push(Step::Answer(entry.kind.counted()));
            }
            Ok(None) if entry.kind == Kind::Info => {
                self.end = End::Info;
                self.tally.add(Counted::Other, Outcome::Granted);
            }
            Ok(None) => {
                let reply = reply(entry.kind, arguments, session, rules.access);
                if entry.kind == Kind::Quit || session.is_guessing {
                    self.end = End::Close;
                }
                self.say(reply, session);
            }
            Err(text) => self.say(Err(text), session),
        }
    }

    /// Notes what the batch took by the token of the session, which may give it back.
    pub(super) fn note_leases(
        &self,
        answers: &[Result<Answer, Unavailable>],
        session: &Session,
        leases: &Leases,
    ) {
        let Some(accepted) = &session.accepted else { return };
        for (operation, answer) in self.operations.iter().zip(answers) {
            if let (Operation::Take(demands), Ok(Answer::Taken(taken))) = (operation, answer) {
                for (demand, taken) in demands.iter().zip(taken) {
                    leases.note(accepted.name(), &demand.bucket, taken, self.time.ms);
                }
            }
        }
    }

    fn say(&mut self, reply: Result<Reply, String>, session: &Session) {
        let outcome = if reply.is_ok() { Outcome::Granted } else { Outcome::Error };
        let before = self.said.len();
        reply.unwrap_or_else(Reply::Error).write(session.version, &mut self.said);
        self.tally.add(Counted::Other, outcome);
        self.steps.push(Step::Said(self.said.len() - before));
    }

    /// Appends all replies to `out`, and returns the counts.
    pub(super) fn reply(mut self, answers: &[Result<Answer, Unavailable>], out: &mut BytesMut) -> Tally {
        let (mut operations, mut answers) = (self.operations.iter(), answers.iter());
        for step in self.steps {
            match step {
                Step::Said(bytes) => out.extend_from_slice(&self.said.split_to(bytes)),
                Step::Answer(counted) => {
                    // An engine that answers too few must not shift the replies of others to this command.
                    let answer = answers.next().unwrap_or(&Err(Unavailable::Store));
                    write_answer(answer, self.time, out);
                    self.tally.add(counted, outcome(operations.next(), answer));
                }
            }
        }
        self.tally
    }
}

/// Returns the operation of a command that the client may use; `None` for one that needs no bucket.
fn operation<'a>(
    entry: &Entry,
    arguments: &[&'a [u8]],
    session: &Session,
    rules: Rules<'_>,
) -> Result<Option<Operation<'a>>, String> {
    let Some(mut operation) = entry.operation(arguments)? else { return Ok(None) };
    admit(entry, &operation, session, rules)?;
    if let Operation::Reduce { at_ms: Some(at_ms), .. } | Operation::Sessionize { at_ms: Some(at_ms), .. } =
        &mut operation
    {
        // The caller has the wall clock.
        let ahead_ms = at_ms.saturating_sub(rules.time.wall_ms());
        if ahead_ms > rules.at_ahead_max_ms {
            let (by_s, max_s) = (ahead_ms / 1_000, rules.at_ahead_max_ms / 1_000);
            return Err(Fault::AtAhead { by_s, max_s }.into());
        }
        *at_ms = rules.time.of_wall(*at_ms);
    }
    Ok(Some(operation))
}

/// Checks the rights of the token that the client has presented. One without a token has all of them.
fn admit(
    entry: &Entry,
    operation: &Operation<'_>,
    session: &Session,
    rules: Rules<'_>,
) -> Result<(), String> {
    let Some(accepted) = &session.accepted else { return Ok(()) };
    let right = match entry.kind {
        Kind::Get(_) => QuotaRight::Read,
        Kind::Give => QuotaRight::Give,
        _ => QuotaRight::Take,
    };
    let may = |right| operation.buckets().all(|(key, _)| key == PROBE_KEY || accepted.has_right(right, key));
    let (is_allowed, needed) = match operation {
        Operation::Give { bucket, tokens } => {
            let took = || rules.leases.give(accepted.name(), bucket, *tokens, rules.time.ms);
            let is_allowed = may(QuotaRight::Reset) || may(right) && took();
            (is_allowed, "give, for what it took before the refill, or reset")
        }
        _ => (may(right), right.as_str()),
    };
    if is_allowed {
        return Ok(());
    }
    let (command, token) = (entry.name, accepted.name());
    let reason = format!(
        "{command} needs the right {needed}, which the token `{token}` has not for this key: see the fourth field of its line \
         in the --tokens file"
    );
    Err(format!("NOPERM {}", rules.access.deny_command(session.ip(), command, reason)))
}

/// Answers a command that needs no bucket.
fn reply(kind: Kind, arguments: &[&[u8]], session: &mut Session, access: &Access) -> Result<Reply, String> {
    match (kind, arguments) {
        (Kind::Ping, []) => Ok(Reply::Simple("PONG")),
        (Kind::Ping | Kind::Echo, [message]) => Ok(Reply::Bulk(message.to_vec())),
        (Kind::Select, [index]) if *index != b"0" => Err("ERR DB index is out of range".to_owned()),
        (Kind::Command, [what]) if what.eq_ignore_ascii_case(b"COUNT") => {
            Ok(Reply::Number(ENTRIES.len() as u64))
        }
        (Kind::Command, [what]) if what.eq_ignore_ascii_case(b"LIST") => {
            Ok(Reply::Array(ENTRIES.iter().map(|entry| Reply::Bulk(entry.name.into())).collect()))
        }
        // No client needs descriptions, and some ask for them.
        (Kind::Command, _) => Ok(Reply::Array(Vec::new())),
        (Kind::Client, _) => session.client(arguments),
        (Kind::Hello, _) => session.hello(arguments, access),
        (Kind::Auth, _) => session.authenticate(arguments, access),
        (Kind::Reset, _) => Ok(session.reset()),
        _ => Ok(Reply::Simple("OK")),
    }
}

/// Returns how an operation ended: what it asked for decides whether it was refused.
fn outcome(operation: Option<&Operation<'_>>, answer: &Result<Answer, Unavailable>) -> Outcome {
    let least = match operation {
        Some(Operation::Reduce { take, .. } | Operation::Sessionize { take, .. }) => *take,
        _ => 0,
    };
    let is_granted = match answer {
        Ok(Answer::Tokens(before)) => *before >= least,
        Ok(Answer::Session(session)) => session.tokens_before >= least,
        Ok(Answer::Throttled(throttled)) => !throttled.limited,
        // Something, or nothing was demanded.
        Ok(Answer::Taken(taken)) => {
            taken.iter().any(|taken| taken.granted > 0)
                || taken.iter().all(|taken| taken.holds_in_ms == Some(0))
        }
        Err(Unavailable::Store) => return Outcome::Unavailable,
        Err(Unavailable::Busy) => return Outcome::Busy,
    };
    if is_granted { Outcome::Granted } else { Outcome::Refused }
}

/// Returns the error for a command that does not exist, in the words of Redis.
fn unknown(name: &[u8], arguments: &[&[u8]]) -> String {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", beginning(name));
    let end = text.len() + REPEATED_BYTES_MAX;
    for argument in arguments {
        if text.len() >= end {
            break;
        }
        text.push_str(&format!("'{}' ", beginning(argument)));
    }
    text
}

/// Returns the beginning of foreign bytes as text.
pub(super) fn beginning(bytes: &[u8]) -> String {
    let bytes = bytes.get(..REPEATED_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}
