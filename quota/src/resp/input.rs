//! The commands in the bytes of a connection: arrays of bulk strings, read one element at a time, so that neither depth
//! nor size of what a client sends can exceed a bound.

use smallvec::SmallVec;

/// The bytes of one command, at most.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// The arguments of one command with its name, at most: those of a take from as many buckets as it may name.
pub(super) const ARGUMENTS_MAX: usize = 512;
/// The bytes of one command before authentication, at most.
pub(super) const ANONYMOUS_BYTES_MAX: usize = 1024;
/// The arguments of one command before authentication, at most.
pub(super) const ANONYMOUS_ARGUMENTS_MAX: usize = 16;
/// The bytes of the line that says how many arguments follow, or how long one is.
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
    let Some(&first) = bytes.first() else { return Ok(None) };
    if first != b'*' {
        return Err(Malformed::NoArray(first));
    }
    let Some((count, mut rest)) = header(bytes).ok_or(Malformed::Count)? else { return incomplete() };
    // A null array has none.
    let count = count.unwrap_or(0);
    if count > bounds.arguments {
        return Err(Malformed::TooMany(bounds.arguments));
    }
    for _ in 0..count {
        match rest.first() {
            None => return incomplete(),
            Some(b'$') => {}
            Some(other) => return Err(Malformed::NoBulk(*other)),
        }
        let Some((length, bulk)) = header(rest).ok_or(Malformed::Length)? else { return incomplete() };
        let length = length.ok_or(Malformed::Length)?;
        let Some((argument, after)) = bulk.split_at_checked(length) else { return incomplete() };
        rest = match after.split_at_checked(END_OF_LINE.len()) {
            Some((END_OF_LINE, rest)) => rest,
            None if END_OF_LINE.starts_with(after) => return incomplete(),
            _ => return Err(Malformed::Length),
        };
        arguments.push(argument);
    }
    Ok(Some(bytes.len() - rest.len()))
}

/// The number in a line, `None` for -1, and what follows the line.
type Header<'a> = (Option<usize>, &'a [u8]);

/// Reads the number in the line after its first byte. `Some(None)` if the line is not whole, `None` if it has no number.
fn header(bytes: &[u8]) -> Option<Option<Header<'_>>> {
    let line = bytes.get(1..)?;
    let Some(end) =
        line.windows(END_OF_LINE.len()).take(HEADER_BYTES_MAX).position(|pair| pair == END_OF_LINE)
    else {
        return (line.len() < HEADER_BYTES_MAX).then_some(None);
    };
    let (digits, rest) = line.split_at_checked(end)?;
    let number = match digits {
        b"-1" => None,
        digits => Some(usize::try_from(number(digits)?).ok()?),
    };
    Some(Some((number, rest.get(END_OF_LINE.len()..)?)))
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
