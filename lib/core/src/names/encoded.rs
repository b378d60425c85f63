//! The names of tenants, made of what callers send: an account of an identity provider, a mail address or the
//! subject of a certificate, which may be any text.

use std::ops::Deref;

use siphasher::sip128::SipHasher24;

use super::plan::split_plan;
use super::{DEFAULT_TENANT, InvalidName, NAME_BYTES_MAX, check_plan, is_plain};

/// Maximum number of bytes that are kept of a name that is too long. An escape is not cut.
const KEPT: usize = 90;
/// The separator between these and the hash. It is no escape, so that no short name ends like a long one.
const SEPARATOR: &str = "%-";
const HASH_DIGITS: usize = 32;
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

const _: () = assert!(KEPT + SEPARATOR.len() + HASH_DIGITS <= NAME_BYTES_MAX);

/// The valid name of a tenant. Texts of letters, digits and `. _ : / @ -` are names as they are. In others each byte
/// outside of this alphabet, and with it `%`, becomes `%` and two upper-case hexadecimal digits. What is longer than
/// [`NAME_BYTES_MAX`] then keeps its beginning, and ends with `%-` and a hash of all of it. So different texts have
/// different names. Names are encoded once: a name with escapes that is encoded again is another name.
#[derive(Clone, Copy, Debug)]
pub enum Encoded<'a> {
    /// The text itself.
    Plain(&'a str),
    /// A name with escapes.
    Escaped(Escaped),
}

/// A name with escapes, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Escaped {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl<'a> Encoded<'a> {
    /// Returns the name for a text; `None` if it is empty. Never allocates. Linear in the length.
    pub fn of(text: &'a str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let is_plain = text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain);
        Some(if is_plain {
            Self::Plain(text)
        } else {
            Self::Escaped(Escaped::of(text.as_bytes()))
        })
    }
}

impl Escaped {
    fn of(text: &[u8]) -> Self {
        let mut name = Self {
            bytes: [0; NAME_BYTES_MAX],
            length: 0,
        };
        let mut kept = 0;
        for byte in text {
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            let fits = if is_plain(*byte) {
                name.push(&[*byte])
            } else {
                name.push(&[b'%', high, low])
            };
            if !fits {
                name.length = kept;
                let hash = SipHasher24::new().hash(text).as_u128();
                let digit = |at: usize| DIGITS[(hash >> (124 - 4 * at)) as usize & 15];
                name.push(SEPARATOR.as_bytes());
                name.push(&std::array::from_fn::<_, HASH_DIGITS, _>(digit));
                break;
            }
            if name.length <= KEPT {
                kept = name.length;
            }
        }
        name
    }

    fn push(&mut self, more: &[u8]) -> bool {
        let room = self.bytes.get_mut(self.length..self.length + more.len());
        room.map(|room| room.copy_from_slice(more))
            .map(|()| self.length += more.len())
            .is_some()
    }
}

impl Deref for Encoded<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Plain(name) => name,
            // Only ASCII.
            Self::Escaped(name) => name
                .bytes
                .get(..name.length)
                .and_then(|name| str::from_utf8(name).ok())
                .unwrap_or_default(),
        }
    }
}

/// Checks the rule of tenants' names: 1 to [`NAME_BYTES_MAX`] bytes of `[A-Za-z0-9._:/@-]` and escapes as an
/// [`Encoded`] name has them, and after these a plan in the form `%~PLAN`. The name of a class has only the plan.
///
/// # Errors
/// The first rule that is broken.
pub fn check_tenant(name: &str) -> Result<(), InvalidName> {
    let (own, plan) = split_plan(name);
    plan.map_or(Ok(()), check_plan)?;
    let mut rest = own.as_bytes();
    match rest.len() {
        0 if plan.is_none() => return Err(InvalidName::Empty),
        // The class of names without a plan has none.
        _ if plan.is_some() && own == DEFAULT_TENANT => {
            return Err(InvalidName::Escape(own.len()));
        }
        0..=NAME_BYTES_MAX => {}
        length => return Err(InvalidName::TooLong(length)),
    }
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) if is_escape(*high, *low) => after,
            (b'%', [b'-', hash @ ..]) if hash.len() == HASH_DIGITS && hash.iter().all(is_digit) => {
                break;
            }
            (b'%', _) => return Err(InvalidName::Escape(own.len() - rest.len())),
            (byte, after) if is_plain(*byte) => after,
            (byte, _) => {
                return Err(InvalidName::Byte {
                    byte: *byte as char,
                    at: own.len() - rest.len(),
                });
            }
        };
    }
    Ok(())
}

fn is_digit(byte: &u8) -> bool {
    DIGITS.contains(byte)
}

/// Returns true for the digits of a byte that is escaped.
fn is_escape(high: u8, low: u8) -> bool {
    let value = |digit: u8| DIGITS.iter().position(|known| *known == digit);
    let value = value(high)
        .zip(value(low))
        .map(|(high, low)| high << 4 | low);
    value.is_some_and(|value| !u8::try_from(value).is_ok_and(is_plain))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::names::Tenant;

    #[test]
    fn bytes_outside_of_the_alphabet_are_escaped() {
        for (text, name) in [
            ("acme", "acme"),
            ("auth0|1a", "auth0%7C1a"),
            ("a+x@b.c", "a%2Bx@b.c"),
            ("CN=shop,O=Acme", "CN%3Dshop%2CO%3DAcme"),
            ("100%", "100%25"),
            ("a%7C", "a%257C"),
            ("caf\u{e9}", "caf%C3%A9"),
            ("\0 ", "%00%20"),
        ] {
            assert_eq!(&*Encoded::of(text).unwrap(), name);
        }
        assert!(Encoded::of("").is_none());
    }

    /// Names are in policies and in quota stores: these values were computed independently of this code.
    #[test]
    fn long_names_end_with_a_hash() {
        let x = |count| "x".repeat(count);
        for (text, name) in [
            (x(128), x(128)),
            (x(129), x(90) + "%-0FD367420FBF4F767E83CCE6C2683825"),
            (
                x(88) + &"|".repeat(40),
                x(88) + "%-34CF4673DCE691773978778D40532FCC",
            ),
        ] {
            assert_eq!(*Encoded::of(&text).unwrap(), *name);
        }
    }

    #[test]
    fn names_that_no_text_has_are_invalid() {
        for (name, at) in [
            ("a%7c", 1),
            ("%", 0),
            ("a%2", 1),
            ("%41", 0),
            ("x%-12", 1),
            ("a%zz", 1),
        ] {
            assert_eq!(check_tenant(name), Err(InvalidName::Escape(at)), "{name}");
        }
        assert_eq!(
            check_tenant("a|b"),
            Err(InvalidName::Byte { byte: '|', at: 1 })
        );
    }

    proptest! {
        #[test]
        fn different_texts_have_different_valid_names(
            texts in proptest::collection::vec(prop_oneof!["[%a7C|\\-]{1,6}", "[%a7C|\u{e9}]{60,130}", ".{1,300}"], 1..50),
        ) {
            let mut named = HashMap::new();
            for text in &texts {
                let name = Encoded::of(text).unwrap();
                prop_assert!(Tenant::new(&name).is_ok(), "{:?}", &*name);
                let other = named.insert(String::from(&*name), text);
                prop_assert!(other.is_none_or(|other| other == text), "{other:?} and {text:?}");
                let again = Encoded::of(&name).unwrap();
                prop_assert_eq!(*again == *name, !name.contains('%'), "plain names alone stay themselves");
            }
        }
    }
}
