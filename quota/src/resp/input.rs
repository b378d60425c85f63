//! Parses the commands of a connection: arrays of bulk strings, read one element at a time, so that
//! neither depth nor size of the input can exceed a bound.

use smallvec::SmallVec;

/// Maximum bytes of one command.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of arguments with the name: enough for a take from as many buckets as are
/// allowed.
pub(super) const ARGUMENTS_MAX: usize = 512;
/// Bounds of a command before the client has authenticated.
pub(super) const ANONYMOUS_BYTES_MAX: usize = 1024;
pub(super) const ANONYMOUS_ARGUMENTS_MAX: usize = 16;
/// Maximum bytes of the line with the number of arguments, or with the length of one.
const HEADER_BYTES_MAX: usize = 16;

const END_OF_LINE: &[u8] = b"\r\n";

pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 12]>;

/// Maximum bytes and arguments of a command, the name included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) arguments: usize,
}

/// Reason why no more commands can be found in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("Protocol error: a command begins with '*', got '{}'", printable(*.0))]
    NoArray(u8),
    #[error("Protocol error: invalid multibulk length")]
    Count,
    #[error("Protocol error: a command has {0} arguments at most here")]
    TooMany(usize),
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    NoBulk(u8),
    #[error("Protocol error: invalid bulk length")]
    Length,
    #[error("Protocol error: a command has {0} bytes at most here")]
    TooLong(usize),
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() {
        char::from(byte)
    } else {
        '?'
    }
}

/// Reads the command at the start of `bytes` into `arguments`, and returns its length; `None` if it
/// is incomplete.
///
/// # Errors
/// When the bytes are not a command, or it exceeds a bound. The rest of the stream cannot be read
/// then.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    bounds: Bounds,
    arguments: &mut Arguments<'a>,
) -> Result<Option<usize>, Malformed> {
    arguments.clear();
    // Bytes beyond the bound are never read, so a fault has one text, no matter how the input is
    // split.
    let bytes = bytes.get(..bounds.bytes).unwrap_or(bytes);
    let incomplete = || {
        if bytes.len() < bounds.bytes {
            Ok(None)
        } else {
            Err(Malformed::TooLong(bounds.bytes))
        }
    };
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    if first != b'*' {
        return Err(Malformed::NoArray(first));
    }
    let Some((count, mut rest)) = header(bytes).ok_or(Malformed::Count)? else {
        return incomplete();
    };
    // A null array has no arguments.
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
        let Some((length, bulk)) = header(rest).ok_or(Malformed::Length)? else {
            return incomplete();
        };
        let length = length.ok_or(Malformed::Length)?;
        let Some((argument, after)) = bulk.split_at_checked(length) else {
            return incomplete();
        };
        rest = match after.split_at_checked(END_OF_LINE.len()) {
            Some((END_OF_LINE, rest)) => rest,
            None if END_OF_LINE.starts_with(after) => return incomplete(),
            _ => return Err(Malformed::Length),
        };
        arguments.push(argument);
    }
    Ok(Some(bytes.len() - rest.len()))
}

/// Number in a line, `None` for -1, and the bytes after the line.
type Header<'a> = (Option<usize>, &'a [u8]);

/// Reads the number in the line after its first byte. `Some(None)` if the line is incomplete,
/// `None` if it has no number.
fn header(bytes: &[u8]) -> Option<Option<Header<'_>>> {
    let line = bytes.get(1..)?;
    let Some(end) = line
        .windows(END_OF_LINE.len())
        .take(HEADER_BYTES_MAX)
        .position(|pair| pair == END_OF_LINE)
    else {
        // The last of these bytes may be the first of the line's end.
        return (line.len() <= HEADER_BYTES_MAX).then_some(None);
    };
    let (digits, rest) = line.split_at_checked(end)?;
    let number = match digits {
        b"-1" => None,
        digits => Some(usize::try_from(number(digits)?).ok()?),
    };
    Some(Some((number, rest.get(END_OF_LINE.len()..)?)))
}

/// Reads a decimal number without a sign, up to the largest that a reply can hold.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 19;
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        // 19 digits fit.
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_input_is_incomplete_until_its_end() {
        let bounds = Bounds {
            bytes: COMMAND_BYTES_MAX,
            arguments: ARGUMENTS_MAX,
        };
        let command = b"*000000000000001\r\n$000000000000001\r\na\r\n";
        for end in 0..=command.len() {
            let read = read(&command[..end], bounds, &mut Arguments::new());
            let whole = (end == command.len()).then_some(end);
            assert_eq!(read.unwrap(), whole, "{end}");
        }
    }
}
