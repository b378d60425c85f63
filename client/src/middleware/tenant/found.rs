//! The text that a source found: borrowed from the request, or written to a buffer, which is on the stack for all but
//! very long ones.

use std::fmt;

use plimsoll_core::names::NAME_BYTES_MAX;
use smallvec::SmallVec;

use crate::middleware::Head;

/// A source of names that are not borrowed from the request alone.
pub(super) trait Find: Send + Sync {
    /// Returns the name, or writes it to `buffer`.
    fn find<'a>(&'a self, request: Head<'a>, buffer: &mut NameBuffer) -> Option<Found<'a>>;

    /// Describes the source, without secrets.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The place of a name that was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    Borrowed(&'a str),
    InBuffer,
}

impl<'a> Found<'a> {
    /// Returns the name.
    pub(super) fn of(self, buffer: &'a NameBuffer) -> &'a str {
        match self {
            Self::Borrowed(name) => name,
            Self::InBuffer => buffer.as_str(),
        }
    }
}

/// Room for one text.
pub(super) struct NameBuffer(SmallVec<[u8; NAME_BYTES_MAX]>);

impl NameBuffer {
    pub(super) fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Replaces what is in the buffer by a formatted text.
    pub(super) fn put<'a>(&mut self, text: fmt::Arguments<'_>) -> Option<Found<'a>> {
        self.0.clear();
        fmt::Write::write_fmt(self, text).ok().map(|()| Found::InBuffer)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Write for NameBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_holds_texts_of_any_length() {
        let mut buffer = NameBuffer::new();
        for length in [300, 0, 1, NAME_BYTES_MAX] {
            let text = "é".repeat(length / 2) + &"a".repeat(length % 2);
            assert_eq!(buffer.put(format_args!("{text}")).unwrap().of(&buffer), text);
        }
    }
}
