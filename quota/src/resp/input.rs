//! The commands in the bytes of a connection: arrays of bulk strings, read one element at a time, so that neither depth
//! nor size of what a client sends can exceed a bound.

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use smallvec::SmallVec;

/// The bytes of one command, at most.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// The arguments of one command with its name, at most: those of a take from as many buckets as it may name.
pub const ARGUMENTS_MAX: usize = 512;
/// The bytes of one command before authentication, at most.
pub const ANONYMOUS_BYTES_MAX: usize = 1024;
/// The arguments of one command before authentication, at most.
pub const ANONYMOUS_ARGUMENTS_MAX: usize = 16;
/// The bytes of the line that says how many arguments follow.
const HEADER_BYTES_MAX: usize = 16;

const END_OF_LINE: &[u8] = b"\r\n";

/// The arguments of one command with its name, in the buffer that they were read into.
pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 12]>;

/// The bounds of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) arguments: usize,
}

/// The reason why no further command can be found in what a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// A command is no array.
    #[error("Protocol error: a command begins with '*', got '{}'", printable(*.0))]
    NoArray(u8),
    /// The number of arguments cannot be read.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// There are too many arguments.
    #[error("Protocol error: a command has {0} arguments at most here")]
    TooMany(usize),
    /// An argument is no bulk string.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    NoBulk(u8),
    /// The length of an argument is wrong.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// A command is too long.
    #[error("Protocol error: a command has {0} bytes at most here")]
    TooLong(usize),
}

/// The bounds of a client that need not authenticate, or has.
pub(super) const TRUSTED: Bounds = Bounds { bytes: COMMAND_BYTES_MAX, arguments: ARGUMENTS_MAX };
/// The bounds of a client that has to authenticate first.
pub(super) const ANONYMOUS: Bounds =
    Bounds { bytes: ANONYMOUS_BYTES_MAX, arguments: ANONYMOUS_ARGUMENTS_MAX };

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() { char::from(byte) } else { '?' }
}

/// Reads the command at the start of `bytes` into `arguments`, and returns its length; `None` if it is not whole yet.
///
/// # Errors
/// When the bytes are no command, or it exceeds a bound. The stream cannot be followed further then.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    bounds: Bounds,
    arguments: &mut Arguments<'a>,
) -> Result<Option<usize>, Malformed> {
    arguments.clear();
    // What is beyond the bound is never looked at, so that a fault has one text in whichever parts the bytes arrive.
    let bytes = bytes.get(..bounds.bytes).unwrap_or(bytes);
    let incomplete =
        || if bytes.len() < bounds.bytes { Ok(None) } else { Err(Malformed::TooLong(bounds.bytes)) };
    let Some((count, mut at)) = header(bytes)? else { return incomplete() };
    if count > bounds.arguments {
        return Err(Malformed::TooMany(bounds.arguments));
    }
    for _ in 0..count {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first() {
            None => return incomplete(),
            // Arrays inside arrays never reach the decoder, which follows them by recursion.
            Some(b'$') => {}
            Some(other) => return Err(Malformed::NoBulk(*other)),
        }
        match decode_range(rest) {
            Ok(Some((RangeFrame::BulkString((start, end)), length))) => {
                let argument = rest.get(start..end).ok_or(Malformed::Length)?;
                if rest.get(end..length) != Some(END_OF_LINE) {
                    return Err(Malformed::Length);
                }
                arguments.push(argument);
                at += length;
            }
            Ok(None) => return incomplete(),
            Ok(Some(_)) | Err(_) => return Err(Malformed::Length),
        }
    }
    Ok(Some(at))
}

/// Reads the number of arguments, and returns it with the length of its line. A null array has none.
fn header(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    if *first != b'*' {
        return Err(Malformed::NoArray(*first));
    }
    let line = rest.get(..HEADER_BYTES_MAX).unwrap_or(rest);
    let Some(end) = line.windows(END_OF_LINE.len()).position(|pair| pair == END_OF_LINE) else {
        return if line.len() < HEADER_BYTES_MAX { Ok(None) } else { Err(Malformed::Count) };
    };
    let count = match line.get(..end) {
        Some(b"-1") => Some(0),
        Some([digit]) if digit.is_ascii_digit() => Some(usize::from(digit - b'0')),
        Some(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
        None => None,
    };
    count.map(|count| Some((count, 1 + end + END_OF_LINE.len()))).ok_or(Malformed::Count)
}

/// Reads a decimal number without a sign, up to the largest that a reply can say.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 19;
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        // 19 digits fit.
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })?;
    i64::try_from(number).is_ok().then_some(number)
}
