//! One batch of the commands that a connection has sent: operations for the engine, and replies
//! that need no bucket, in their order.

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

/// Maximum number of commands in one batch; more commands begin the next.
pub(super) const COMMANDS_PER_BATCH_MAX: usize = 1_024;
/// Bytes of replies that need no bucket from which a batch ends.
pub(super) const BATCH_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Key that the client library asks at its start to check that the store answers, independent of
/// the keys of its token.
const PROBE_KEY: &[u8] = b"{default}:plimsoll-start";
/// Maximum bytes of the client's own that an error repeats.
const REPEATED_BYTES_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'r> {
    pub(super) access: &'r Access,
    pub(super) leases: &'r Leases,
    pub(super) time: QuotaTime,
    pub(super) at_ahead_max_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    /// The answers arrive in the same order.
    pub(super) operations: Vec<Operation<'a>>,
    steps: Vec<Step>,
    /// Replies that need no bucket.
    said: BytesMut,
    /// Bytes of the commands in the input.
    pub(super) length: usize,
    /// Reason why it has no more commands.
    pub(super) end: End,
    tally: Tally,
    time: QuotaTime,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The answer to the next operation.
    Answer(Counted),
    /// This many bytes of `said`.
    Said(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The rest of the input is not a whole command.
    #[default]
    NeedsInput,
    /// It has reached its bounds, and there may be more commands.
    Full,
    /// The client asks for server statistics, after the replies of the batch.
    Info,
    /// The connection must be closed after the replies of the batch.
    Close,
}

impl<'a> Batch<'a> {
    pub(super) fn read(bytes: &'a [u8], session: &mut Session, rules: Rules<'_>) -> Self {
        let mut batch = Self {
            time: rules.time,
            ..Self::default()
        };
        let mut arguments = Arguments::new();
        while batch.end == End::NeedsInput {
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
            let is_full = batch.steps.len() >= COMMANDS_PER_BATCH_MAX
                || batch.said.len() >= BATCH_REPLY_BYTES_MAX;
            if is_full && batch.end == End::NeedsInput {
                batch.end = End::Full;
            }
        }
        batch
    }

    /// Adds a command: as an operation, or with its reply.
    fn follow(
        &mut self,
        name: &[u8],
        arguments: &[&'a [u8]],
        session: &mut Session,
        rules: Rules<'_>,
    ) {
        let entry = commands::find(name);
        let is_for_all = |entry: &Entry| {
            matches!(
                entry.kind,
                Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset
            )
        };
        if !session.is_trusted() && !entry.is_some_and(is_for_all) {
            return self.say(Err(NO_AUTH.to_owned()), session);
        }
        let Some(entry) = entry else {
            return self.say(Err(unknown(name, arguments)), session);
        };
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

    /// Notes the tokens that the session's token took in this batch and may give back.
    pub(super) fn note_leases(
        &self,
        answers: &[Result<Answer, Unavailable>],
        session: &Session,
        leases: &Leases,
    ) {
        let Some(accepted) = &session.accepted else {
            return;
        };
        for (operation, answer) in self.operations.iter().zip(answers) {
            if let (Operation::Take(demands), Ok(Answer::Taken(taken))) = (operation, answer) {
                for (demand, taken) in demands.iter().zip(taken) {
                    leases.note(accepted.name(), &demand.bucket, taken, self.time.ms);
                }
            }
        }
    }

    fn say(&mut self, reply: Result<Reply, String>, session: &Session) {
        let outcome = if reply.is_ok() {
            Outcome::Granted
        } else {
            Outcome::Error
        };
        let before = self.said.len();
        reply
            .unwrap_or_else(Reply::Error)
            .write(session.version, &mut self.said);
        self.tally.add(Counted::Other, outcome);
        self.steps.push(Step::Said(self.said.len() - before));
    }

    /// Appends all replies to `out`, and returns the counts.
    pub(super) fn reply(
        mut self,
        answers: &[Result<Answer, Unavailable>],
        out: &mut BytesMut,
    ) -> Tally {
        let (mut operations, mut answers) = (self.operations.iter(), answers.iter());
        for step in self.steps {
            match step {
                Step::Said(bytes) => out.extend_from_slice(&self.said.split_to(bytes)),
                Step::Answer(counted) => {
                    // An engine that answers too few must not shift the replies of others to this
                    // command.
                    let answer = answers.next().unwrap_or(&Err(Unavailable::Store));
                    write_answer(answer, self.time, out);
                    self.tally.add(counted, outcome(operations.next(), answer));
                }
            }
        }
        self.tally
    }
}

fn operation<'a>(
    entry: &Entry,
    arguments: &[&'a [u8]],
    session: &Session,
    rules: Rules<'_>,
) -> Result<Option<Operation<'a>>, String> {
    let Some(mut operation) = entry.operation(arguments)? else {
        return Ok(None);
    };
    admit(entry, &operation, session, rules)?;
    if let Operation::Reduce {
        at_ms: Some(at_ms), ..
    }
    | Operation::Sessionize {
        at_ms: Some(at_ms), ..
    } = &mut operation
    {
        // The caller sends wall clock times.
        let ahead_ms = at_ms.saturating_sub(rules.time.wall_ms());
        if ahead_ms > rules.at_ahead_max_ms {
            let (by_s, max_s) = (ahead_ms / 1_000, rules.at_ahead_max_ms / 1_000);
            return Err(Fault::AtAhead { by_s, max_s }.into());
        }
        *at_ms = rules.time.of_wall(*at_ms);
    }
    Ok(Some(operation))
}

/// Checks the rights of the client's token, and takes what it gives back off its lease. A client
/// without a token has all rights.
fn admit(
    entry: &Entry,
    operation: &Operation<'_>,
    session: &Session,
    rules: Rules<'_>,
) -> Result<(), String> {
    let Some(accepted) = &session.accepted else {
        return Ok(());
    };
    let right = match entry.kind {
        Kind::Get(_) => QuotaRight::Read,
        Kind::Give => QuotaRight::Give,
        _ => QuotaRight::Take,
    };
    let may = |right| {
        operation
            .buckets()
            .all(|(key, _)| key == PROBE_KEY || accepted.has_right(right, key))
    };
    let (is_allowed, needed) = match operation {
        Operation::Give { bucket, tokens } => {
            let took = || {
                rules
                    .leases
                    .give(accepted.name(), bucket, *tokens, rules.time.ms)
            };
            let is_allowed = may(QuotaRight::Reset) || may(right) && took();
            (
                is_allowed,
                "give, for what it took before the refill, or reset",
            )
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
    Err(format!(
        "NOPERM {}",
        rules.access.deny_command(session.ip(), command, reason)
    ))
}

fn reply(
    kind: Kind,
    arguments: &[&[u8]],
    session: &mut Session,
    access: &Access,
) -> Result<Reply, String> {
    match (kind, arguments) {
        (Kind::Ping, []) => Ok(Reply::Simple("PONG")),
        (Kind::Ping | Kind::Echo, [message]) => Ok(Reply::Bulk(message.to_vec())),
        (Kind::Select, [index]) if *index != b"0" => Err("ERR DB index is out of range".to_owned()),
        (Kind::Command, [what]) if what.eq_ignore_ascii_case(b"COUNT") => {
            Ok(Reply::Number(ENTRIES.len() as u64))
        }
        (Kind::Command, [what]) if what.eq_ignore_ascii_case(b"LIST") => Ok(Reply::Array(
            ENTRIES
                .iter()
                .map(|entry| Reply::Bulk(entry.name.into()))
                .collect(),
        )),
        // No client needs descriptions, and some ask for them.
        (Kind::Command, _) => Ok(Reply::Array(Vec::new())),
        (Kind::Client, _) => session.client(arguments),
        (Kind::Hello, _) => session.hello(arguments, access),
        (Kind::Auth, _) => session.authenticate(arguments, access),
        (Kind::Reset, _) => Ok(session.reset()),
        _ => Ok(Reply::Simple("OK")),
    }
}

/// Compares the demand with the answer to decide whether the operation was refused.
fn outcome(operation: Option<&Operation<'_>>, answer: &Result<Answer, Unavailable>) -> Outcome {
    let least = match operation {
        Some(Operation::Reduce { take, .. } | Operation::Sessionize { take, .. }) => *take,
        _ => 0,
    };
    let is_granted = match answer {
        Ok(Answer::Tokens(before)) => *before >= least,
        Ok(Answer::Session(session)) => session.tokens_before >= least,
        Ok(Answer::Throttled(throttled)) => !throttled.limited,
        // Something was granted, or nothing was demanded.
        Ok(Answer::Taken(taken)) => {
            taken.iter().any(|taken| taken.granted > 0)
                || taken.iter().all(|taken| taken.holds_in_ms == Some(0))
        }
        Err(Unavailable::Store) => return Outcome::Unavailable,
        Err(Unavailable::Busy) => return Outcome::Busy,
    };
    if is_granted {
        Outcome::Granted
    } else {
        Outcome::Refused
    }
}

/// Returns the error for a command that does not exist, in the words of Redis.
fn unknown(name: &[u8], arguments: &[&[u8]]) -> String {
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        beginning(name)
    );
    let end = text.len() + REPEATED_BYTES_MAX;
    for argument in arguments {
        if text.len() >= end {
            break;
        }
        text.push_str(&format!("'{}' ", beginning(argument)));
    }
    text
}

pub(super) fn beginning(bytes: &[u8]) -> String {
    let bytes = bytes.get(..REPEATED_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}
