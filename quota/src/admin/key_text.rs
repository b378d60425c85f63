//! Redis keys of quota buckets as text: they may be any bytes, and operators read and write them in a terminal, in JSON
//! and in a URL.

use std::fmt::Write;

use plimsoll_core::names::Text;

use crate::operation::KEY_BYTES_MAX;

/// Reason why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// An escape is neither `\xNN` nor `\\`.
    #[error(
        "the key has a `\\` that begins neither `\\\\` nor `\\xNN` with two hexadecimal digits"
    )]
    Escape,
    /// The key is too long.
    #[error("the key has {0} bytes, and a key has at most {KEY_BYTES_MAX}")]
    TooLong(usize),
}

/// Returns a key as text. Bytes that are not UTF-8, and characters that control a terminal or
/// change the direction of its text, become `\xNN`; a backslash becomes `\\`.
pub fn escape(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '\\' {
                text.push_str("\\\\");
            } else if Text::is_unfit(letter) {
                let mut bytes = [0; 4];
                push_bytes(&mut text, letter.encode_utf8(&mut bytes).as_bytes());
            } else {
                text.push(letter);
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

/// Reverses [`escape`].
///
/// # Errors
/// When an escape is unknown, or the key is too long.
pub fn unescape(text: &str) -> Result<Vec<u8>, InvalidKey> {
    let key = decode(text)?;
    if key.len() > KEY_BYTES_MAX {
        Err(InvalidKey::TooLong(key.len()))
    } else {
        Ok(key)
    }
}

/// Reverses [`escape`] for any length, such as that of a row's key, which is the cursor of a page.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, InvalidKey> {
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        key.push(match bytes.next() {
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let digits = digit().zip(digit()).map(|(high, low)| 16 * high + low);
                digits
                    .and_then(|byte| u8::try_from(byte).ok())
                    .ok_or(InvalidKey::Escape)?
            }
            _ => return Err(InvalidKey::Escape),
        });
    }
    Ok(key)
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unreadable_keys_are_escaped() {
        for (key, text) in [
            (&b""[..], ""),
            (b"{acme}:api_calls", "{acme}:api_calls"),
            ("käse 1".as_bytes(), "käse 1"),
            (b"a\xffb", "a\\xffb"),
            (b"a\\b", "a\\\\b"),
            (b"a\nb\x1b[2J", "a\\x0ab\\x1b[2J"),
            ("\u{202e}".as_bytes(), "\\xe2\\x80\\xae"),
            (b"\xe2\x82", "\\xe2\\x82"),
        ] {
            assert_eq!(escape(key), text);
            assert_eq!(unescape(text).as_deref(), Ok(key));
        }
    }

    #[test]
    fn unknown_escapes_and_long_keys_are_refused() {
        for text in ["\\", "a\\n", "\\x", "\\x1", "\\xg0", "\\x+1", "\\xé"] {
            assert_eq!(unescape(text), Err(InvalidKey::Escape), "{text}");
        }
        assert_eq!(
            unescape(&"k".repeat(KEY_BYTES_MAX)).map(|key| key.len()),
            Ok(KEY_BYTES_MAX)
        );
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(unescape(&long), Err(InvalidKey::TooLong(KEY_BYTES_MAX + 1)));
        // Only the bytes of the key count, not the letters of its text.
        assert!(unescape(&"\\x00".repeat(KEY_BYTES_MAX)).is_ok());
    }

    proptest! {
        #[test]
        fn key_text_is_printable_and_unique(key in prop::collection::vec(any::<u8>(), 0..=KEY_BYTES_MAX)) {
            let text = escape(&key);
            prop_assert!(!text.chars().any(Text::is_unfit));
            prop_assert_eq!(unescape(&text), Ok(key));
        }
    }
}
