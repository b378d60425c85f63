//! The list of commands, with what `COMMAND` says about each: clients that know clusters read from it where keys are.

/// A command.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct Entry {
    /// The name in lower case.
    pub(in crate::resp) name: &'static str,
    pub(in crate::resp) kind: Kind,
    /// The arguments with the name; at least so many if negative.
    pub(in crate::resp) arity: i64,
    pub(in crate::resp) flags: &'static [&'static str],
    /// The positions of the first and the last key, and the step between keys.
    pub(in crate::resp) keys: (i64, i64, i64),
    pub(in crate::resp) summary: &'static str,
    /// The arguments as a manual writes them.
    pub(in crate::resp) syntax: &'static str,
}

/// The part of the server that answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Kind {
    Bucket(Verb, Unit),
    Throttle,
    Take,
    Give,
    Ping,
    Echo,
    Info,
    Select,
    Command,
    Client,
    Hello,
    Auth,
    Quit,
    Reset,
}

/// The operation of a command on a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Verb {
    Reduce,
    Get,
    Sessionize,
}

/// The unit of the times in arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Unit {
    Seconds,
    Milliseconds,
}

const WRITE: &[&str] = &["write", "denyoom", "fast"];
const READ: &[&str] = &["readonly", "fast"];
const LOCAL: &[&str] = &["fast", "loading", "stale"];
const OPEN: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const NO_KEYS: (i64, i64, i64) = (0, 0, 0);
const ONE_KEY: (i64, i64, i64) = (1, 1, 1);

const fn bucket(
    name: &'static str,
    verb: Verb,
    unit: Unit,
    summary: &'static str,
    syntax: &'static str,
) -> Entry {
    let flags = if matches!(verb, Verb::Get) { READ } else { WRITE };
    Entry { name, kind: Kind::Bucket(verb, unit), arity: -4, flags, keys: ONE_KEY, summary, syntax }
}

const fn local(
    name: &'static str,
    kind: Kind,
    arity: i64,
    flags: &'static [&'static str],
    summary: &'static str,
    syntax: &'static str,
) -> Entry {
    Entry { name, kind, arity, flags, keys: NO_KEYS, summary, syntax }
}

/// Every command, those of the request path first.
pub(in crate::resp) static ENTRIES: [Entry; 19] = [
    bucket(
        "rl.reduce",
        Verb::Reduce,
        Unit::Seconds,
        "Takes tokens from a bucket and returns the number before the take.",
        "key max refilltime [REFILL n] [TAKE n] [AT seconds] [STRICT]",
    ),
    Entry {
        name: "quota.take",
        kind: Kind::Take,
        arity: -7,
        flags: WRITE,
        keys: (1, -1, 6),
        summary: "Takes tokens from several buckets, or from none.",
        syntax: "key max refill every_ms least wanted [key max refill every_ms least wanted ...]",
    },
    bucket(
        "rl.preduce",
        Verb::Reduce,
        Unit::Milliseconds,
        "Takes tokens from a bucket, with times in milliseconds.",
        "key max refilltime [REFILL n] [TAKE n] [AT milliseconds] [STRICT]",
    ),
    Entry {
        name: "cl.throttle",
        kind: Kind::Throttle,
        arity: -5,
        flags: WRITE,
        keys: ONE_KEY,
        summary: "Decides about requests by the generic cell rate algorithm.",
        syntax: "key max_burst count_per_period period [quantity]",
    },
    bucket(
        "rl.get",
        Verb::Get,
        Unit::Seconds,
        "Returns the tokens of a bucket.",
        "key max refilltime [REFILL n] [AT seconds]",
    ),
    bucket(
        "rl.pget",
        Verb::Get,
        Unit::Milliseconds,
        "Returns the tokens of a bucket, with times in milliseconds.",
        "key max refilltime [REFILL n] [AT milliseconds]",
    ),
    bucket(
        "rl.sessionize",
        Verb::Sessionize,
        Unit::Seconds,
        "Takes tokens and returns the number before the take and the start of the session.",
        "key max refilltime [REFILL n] [TAKE n] [AT seconds] [STRICT]",
    ),
    bucket(
        "rl.psessionize",
        Verb::Sessionize,
        Unit::Milliseconds,
        "Takes tokens for a session, with times in milliseconds.",
        "key max refilltime [REFILL n] [TAKE n] [AT milliseconds] [STRICT]",
    ),
    Entry {
        name: "quota.give",
        kind: Kind::Give,
        arity: 6,
        flags: WRITE,
        keys: ONE_KEY,
        summary: "Gives tokens of a lease back.",
        syntax: "key max refill every_ms tokens",
    },
    local("ping", Kind::Ping, -1, LOCAL, "Returns PONG, or the message.", "[message]"),
    local("echo", Kind::Echo, 2, LOCAL, "Returns the message.", "message"),
    local(
        "info",
        Kind::Info,
        -1,
        &["loading", "stale"],
        "Returns figures of the server.",
        "[section [section ...]]",
    ),
    local("select", Kind::Select, 2, LOCAL, "Selects database 0, the only one.", "index"),
    local(
        "command",
        Kind::Command,
        -1,
        &["loading", "stale"],
        "Describes the commands.",
        "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]",
    ),
    local(
        "client",
        Kind::Client,
        -2,
        LOCAL,
        "Names the connection, or describes it.",
        "ID | INFO | GETNAME | SETNAME name | SETINFO LIB-NAME | LIB-VER value | NO-EVICT ON | OFF",
    ),
    local(
        "hello",
        Kind::Hello,
        -1,
        OPEN,
        "Selects the version of the protocol.",
        "[2 | 3 [AUTH name token] [SETNAME name]]",
    ),
    local("auth", Kind::Auth, -2, OPEN, "Authenticates by a token.", "[name] token"),
    local("quit", Kind::Quit, -1, OPEN, "Closes the connection.", ""),
    local("reset", Kind::Reset, 1, OPEN, "Puts the connection back to its beginning.", ""),
];

/// Returns the command of a name, in any case.
pub(in crate::resp) fn entry(name: &[u8]) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
}

impl Entry {
    /// Returns true for this number of arguments with the name.
    pub(in crate::resp) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }
}
