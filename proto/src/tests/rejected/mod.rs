//! Messages out of range, each with the error that rejects it.

mod directives;
mod reports;

use plimsoll_core::names::InvalidName;

use super::*;

/// A change that makes a valid message invalid, and its error.
type Rejected<T> = (fn(&mut T), DecodeError);

fn invalid_name(field: &'static str, source: InvalidName) -> DecodeError {
    DecodeError::Name { field, source }
}

fn too_many(field: &'static str, got: usize, most: usize) -> DecodeError {
    DecodeError::TooMany { field, got, most }
}

/// Asserts that the last part is rejected and all parts before it are accepted.
fn check_last_rejected<MessagePart, Message: std::fmt::Debug + PartialEq>(
    parts: Vec<MessagePart>,
    error: &DecodeError,
    mut decode: impl FnMut(MessagePart) -> Result<Option<Message>, DecodeError>,
) {
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        let decoded = decode(part);
        if at < last {
            assert!(decoded.is_ok(), "part {at} before {error}: {decoded:?}");
        } else {
            assert_eq!(decoded.as_ref(), Err(error));
        }
    }
}
