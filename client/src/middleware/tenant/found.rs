//! The name that a source found: borrowed from the request, or written to a buffer on the stack, so that no source
//! allocates.

use std::fmt;

use plimsoll_core::names::NAME_BYTES_MAX;

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

/// Room for one name.
pub(super) struct NameBuffer {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl NameBuffer {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX], length: 0 }
    }

    /// Replaces what is in the buffer by a formatted name; `None` if it is too long.
    pub(super) fn put<'a>(&mut self, name: fmt::Arguments<'_>) -> Option<Found<'a>> {
        self.length = 0;
        fmt::Write::write_fmt(self, name).ok().map(|()| Found::InBuffer)
    }

    /// Replaces what is in the buffer by a name; `None` if it is too long.
    pub(super) fn put_str<'a>(&mut self, name: &str) -> Option<Found<'a>> {
        self.length = 0;
        fmt::Write::write_str(self, name).ok().map(|()| Found::InBuffer)
    }

    fn as_str(&self) -> &str {
        let name = self.bytes.get(..self.length).and_then(|name| std::str::from_utf8(name).ok());
        name.unwrap_or_default()
    }
}

impl fmt::Write for NameBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_holds_a_name_of_full_length_and_no_longer_one() {
        let mut buffer = NameBuffer::new();
        for length in [0, 1, NAME_BYTES_MAX] {
            let name = "é".repeat(length / 2) + &"a".repeat(length % 2);
            assert_eq!(buffer.put_str(&name).unwrap().of(&buffer), name);
            assert_eq!(buffer.put(format_args!("{name}")).unwrap().of(&buffer), name);
        }
        assert!(buffer.put_str(&"a".repeat(NAME_BYTES_MAX + 1)).is_none());
        assert!(buffer.put(format_args!("{:200}", 1)).is_none());
    }
}
