//! Validated names of buckets, tenants, zones, services and instances, and the key: a pair of bucket and
//! tenant.

mod encoded;
mod key_table;
#[cfg(feature = "nearest")]
mod nearest;
mod plan;
mod stable_hash;
mod text;

pub use encoded::{Encoded, Escaped, check_tenant};
pub use key_table::{DECLARED_MAX, KeyTable, TablePlace};
#[cfg(feature = "nearest")]
pub use nearest::nearest;
pub use plan::{
    PLAN_BYTES_MAX, PLANS_MAX, Planned, TENANT_BYTES_MAX, check_plan, is_class, is_class_of_plan,
    own_name, plan_of, split_class,
};
pub use stable_hash::stable_hash;
pub use text::{InvalidText, Text};

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The class of every tenant that the policy does not list and that has no plan.
pub const DEFAULT_TENANT: &str = "default";

/// The rule of names that a text breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// A name has at least one byte.
    #[error("a name must not be empty")]
    Empty,
    /// A name has at most [`NAME_BYTES_MAX`] bytes.
    #[error("a name has at most {NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// The name of a plan has at most [`PLAN_BYTES_MAX`] bytes.
    #[error("the name of a plan has at most {PLAN_BYTES_MAX} bytes, this one has {0}")]
    PlanTooLong(usize),
    /// A byte outside the alphabet of names, and its position.
    #[error("a name consists of letters, digits and . _ : / @ - but has {} at byte {at}", shown(*byte))]
    Byte {
        /// The byte as a character.
        byte: char,
        /// Its offset in the text.
        at: usize,
    },
    /// A `%` in a tenant's name that begins no escape, and its position.
    #[error(
        "a `%` in the name of a tenant begins the escape of a byte, such as %7C in upper case for `|`, or %25 for itself, but \
         not at byte {0}"
    )]
    Escape(usize),
}

/// Checks the rule of names: 1 to 128 bytes of `[A-Za-z0-9._:/@-]`. Linear in the length, which it bounds
/// first.
///
/// # Errors
/// The first rule that is broken.
pub const fn check_name(text: &str) -> Result<(), InvalidName> {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return Err(InvalidName::Empty);
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(InvalidName::TooLong(bytes.len()));
    }
    let mut at = 0;
    while at < bytes.len() {
        if !is_plain(bytes[at]) {
            return Err(InvalidName::Byte {
                byte: bytes[at] as char,
                at,
            });
        }
        at += 1;
    }
    Ok(())
}

/// The names that [`check_name`] accepts, as a pattern of schemas.
#[cfg(feature = "schema")]
const NAME_PATTERN: &str = "^[A-Za-z0-9._:/@-]+$";
/// The names of tenants: with the escapes of [`Encoded`].
#[cfg(feature = "schema")]
const TENANT_PATTERN: &str = "^[A-Za-z0-9._:/@%~-]+$";

/// A byte outside ASCII is a part of a character that cannot be shown alone.
fn shown(byte: char) -> String {
    if byte.is_ascii() {
        format!("{byte:?}")
    } else {
        "a character outside ASCII".to_owned()
    }
}

const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b':' | b'/' | b'@' | b'-')
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:ident, $longest:ident, $pattern:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(extend(
            "pattern" = $pattern,
            "maxLength" = $longest
        )))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates `text`; a clone of the result costs one reference count.
            ///
            /// # Errors
            /// If `text` is not a name.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                $check(text).map(|()| Self(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name! {
    /// A protected resource, such as `checkout`.
    Bucket, check_name, NAME_BYTES_MAX, NAME_PATTERN
}
name! {
    /// The tenant that a request belongs to: the [`Encoded`] name of what a caller sent. Tenants that the policy does
    /// not list share the class of their plan, or [`DEFAULT_TENANT`].
    Tenant, check_tenant, TENANT_BYTES_MAX, TENANT_PATTERN
}
name! {
    /// A failure domain with its own aggregators, such as `eu-west-1a`.
    Zone, check_name, NAME_BYTES_MAX, NAME_PATTERN
}

name! {
    /// The name of a service or of one of its instances, such as `checkout-api` or `host-7:8080`.
    Name, check_name, NAME_BYTES_MAX, NAME_PATTERN
}

impl Tenant {
    /// The class that all tenants without their own entry and without a plan share.
    pub fn default_class() -> Self {
        Self(DEFAULT_TENANT.into())
    }
}

/// One (bucket, tenant) pair: the unit of counting and of directives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The resource.
    pub bucket: Bucket,
    /// The tenant.
    pub tenant: Tenant,
}

/// The id of a key in the table of one owner: dense, from 0 on, meaningless elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// The id as an index into a dense table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_in_the_constructor() {
        for good in [
            "a",
            "checkout",
            "api/users",
            "A.b_c:d@e-9",
            &"x".repeat(128),
        ] {
            assert_eq!(Bucket::new(good).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", InvalidName::Empty),
            (&"x".repeat(129), InvalidName::TooLong(129)),
            ("a b", InvalidName::Byte { byte: ' ', at: 1 }),
            ("api/*", InvalidName::Byte { byte: '*', at: 4 }),
            (
                "a\u{0}",
                InvalidName::Byte {
                    byte: '\u{0}',
                    at: 1,
                },
            ),
        ] {
            assert_eq!(Tenant::new(bad).unwrap_err(), why, "{bad:?}");
        }
        let accented = Bucket::new("café").unwrap_err().to_string();
        assert!(
            accented.ends_with("has a character outside ASCII at byte 3"),
            "{accented}"
        );
        assert!(Tenant::new("caf\u{e9}").is_err());
    }
}
