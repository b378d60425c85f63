//! A bucket that no entry of the policy covers, and the name that was probably meant.

use std::fmt;

use crate::names::Bucket;

/// Maximum length of a name that is kept. A longer one is left out.
pub const NEAREST_BYTES_MAX: usize = 63;

/// The terms of a bucket that no entry of the policy covers. The name is stored in place, because terms are copied
/// for every child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unlisted {
    nearest: [u8; NEAREST_BYTES_MAX],
    len: u8,
}

impl Unlisted {
    /// Creates the terms with the bucket of the policy that has the most similar name, if one is similar. A name
    /// longer than [`NEAREST_BYTES_MAX`] is left out.
    pub fn new(nearest: Option<&Bucket>) -> Self {
        let mut unlisted = Self {
            nearest: [0; NEAREST_BYTES_MAX],
            len: 0,
        };
        let name = nearest.map_or("", Bucket::as_str).as_bytes();
        if let Some(place) = unlisted.nearest.get_mut(..name.len()) {
            place.copy_from_slice(name);
            unlisted.len = name.len() as u8;
        }
        unlisted
    }

    /// Returns the most similar name in the policy.
    pub fn nearest(&self) -> Option<&str> {
        let name = self
            .nearest
            .get(..usize::from(self.len))
            .filter(|name| !name.is_empty())?;
        std::str::from_utf8(name).ok()
    }
}

impl fmt::Debug for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unlisted")
            .field("nearest", &self.nearest())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_name_is_kept() {
        for (name, kept) in [
            (None, None),
            (Some("checkout".to_owned()), Some("checkout".to_owned())),
            (
                Some("x".repeat(NEAREST_BYTES_MAX)),
                Some("x".repeat(NEAREST_BYTES_MAX)),
            ),
            (Some("x".repeat(NEAREST_BYTES_MAX + 1)), None),
        ] {
            let bucket = name.map(|name| Bucket::new(&name).unwrap());
            let unlisted = Unlisted::new(bucket.as_ref());
            assert_eq!(unlisted.nearest(), kept.as_deref());
            assert_eq!(
                unlisted,
                Unlisted::new(kept.map(|name| Bucket::new(&name).unwrap()).as_ref())
            );
        }
    }
}
