//! The rows of the store: the key, a suffix that separates its buckets, and the state.

use plimsoll_core::quota::{Balance, Gcra, QuotaRate};
use smallvec::SmallVec;

pub(crate) type RowKey = SmallVec<[u8; 96]>;

/// Key of the row in the log with the number of the last commit. No bucket has a key of one byte.
pub(super) const COMMIT_KEY: [u8; 1] = [0];

/// Key of the row with the number of the last commit that left the log completely. Both the buckets
/// and the log have it.
pub(super) const SETTLED_KEY: [u8; 1] = [1];

/// Ends the caller's key. A search for a key finds a longer one only if that has this byte after it.
const END: u8 = 0;
const TOKENS: u8 = 1;
const THROTTLE: u8 = 2;
const RATE_BYTES: usize = 24;
const VERSION: u8 = 1;

/// Separates the buckets of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tokens(QuotaRate),
    Throttle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Tokens(Balance),
    Throttle(Gcra),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) state: State,
    /// Time by the server's clock when the bucket is full again.
    pub(crate) full_at_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) number: u64,
    /// Number of the commit before it.
    pub(super) before: u64,
}

impl Commit {
    pub(super) fn encode(self) -> [u8; 16] {
        let mut value = [0; 16];
        let numbers = [self.number, self.before].map(u64::to_le_bytes);
        value.copy_from_slice(numbers.as_flattened());
        value
    }

    /// Reads the value; `None` if it is invalid.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let ([number, before], []) = value.as_chunks::<8>() else {
            return None;
        };
        Some(Self {
            number: u64::from_le_bytes(*number),
            before: u64::from_le_bytes(*before),
        })
    }
}

impl Kind {
    pub(crate) fn row_key(self, key: &[u8]) -> RowKey {
        let mut row_key = RowKey::with_capacity(key.len() + RATE_BYTES + 2);
        row_key.extend_from_slice(key);
        match self {
            Self::Tokens(rate) => {
                let mut end = [0; RATE_BYTES + 2];
                end[1..9].copy_from_slice(&rate.max().to_be_bytes());
                end[9..17].copy_from_slice(&rate.refill().to_be_bytes());
                end[17..25].copy_from_slice(&rate.every_ms().to_be_bytes());
                end[25] = TOKENS;
                row_key.extend_from_slice(&end);
            }
            Self::Throttle => row_key.extend_from_slice(&[END, THROTTLE]),
        }
        row_key
    }

    /// Returns the prefix of all rows of a key.
    pub(crate) fn prefix(key: &[u8]) -> RowKey {
        let mut prefix = RowKey::from_slice(key);
        prefix.push(END);
        prefix
    }

    /// Splits the key of a row. `None` if it is not a bucket's.
    pub(crate) fn parse(row_key: &[u8]) -> Option<(&[u8], Self)> {
        let (&kind, rest) = row_key.split_last()?;
        match kind {
            THROTTLE => rest.strip_suffix(&[END]).map(|key| (key, Self::Throttle)),
            TOKENS => {
                let (rest, rate) = rest.split_last_chunk::<RATE_BYTES>()?;
                let number = |at: usize| {
                    let bytes = rate.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                    bytes.map_or(0, u64::from_be_bytes)
                };
                let rate = QuotaRate::new(number(0), number(8), number(16)).ok()?;
                rest.strip_suffix(&[END])
                    .map(|key| (key, Self::Tokens(rate)))
            }
            _ => None,
        }
    }
}

impl Row {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.full_at_ms.to_le_bytes());
        match self.state {
            State::Tokens(balance) => {
                for number in [
                    balance.tokens,
                    balance.refilled_at_ms,
                    balance.session_start_ms,
                ] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
            State::Throttle(gcra) => bytes.extend_from_slice(&gcra.arrival_ns.to_le_bytes()),
        }
    }

    /// Reads a value; `None` if it is invalid or of another version.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (&version, rest) = value.split_first()?;
        let (numbers, []) = rest.as_chunks::<8>() else {
            return None;
        };
        if version != VERSION {
            return None;
        }
        let number = |at: usize| numbers.get(at).map(|bytes| u64::from_le_bytes(*bytes));
        let state = match numbers.len() {
            4 => State::Tokens(Balance {
                tokens: number(1)?,
                refilled_at_ms: number(2)?,
                session_start_ms: number(3)?,
            }),
            2 => State::Throttle(Gcra {
                arrival_ns: number(1)?,
            }),
            _ => return None,
        };
        Some(Self {
            state,
            full_at_ms: number(0)?,
        })
    }
}
