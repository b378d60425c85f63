//! The log of changes: each commit is a few long rows with all changed buckets, which costs far
//! less than a row for each. Buckets are written to separate rows later, once for many commits.

use super::StoreError;

/// Bytes of a part of a commit before the next one begins.
const PART_BYTES: usize = 32 * 1024;
/// Bytes of the lengths of a key and its value.
const LENGTHS: usize = 4;

/// Key of a part: the number of its commit, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartKey {
    pub(super) number: u64,
    pub(super) part: u32,
}

impl PartKey {
    /// Encodes the key in the order of the parts.
    pub(super) fn encode(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&self.number.to_be_bytes());
        key[8..].copy_from_slice(&self.part.to_be_bytes());
        key
    }

    /// Reads a key; `None` for another kind of row.
    pub(super) fn decode(key: &[u8]) -> Option<Self> {
        let (number, part) = key.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            part: u32::from_be_bytes(part.try_into().ok()?),
        })
    }
}

/// Returns the next part of some rows; empty if there is none.
pub(super) fn part<'a>(rows: &mut impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < PART_BYTES
        && let Some((key, value)) = rows.next()
    {
        if bytes.is_empty() {
            bytes.reserve_exact(PART_BYTES + LENGTHS + key.len() + value.len());
        }
        for length in [key.len(), value.len()] {
            // Keys and values are far shorter.
            bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        }
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Returns the keys and values of a part; the value of a removed row is empty.
pub(super) fn rows(part: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), StoreError>> {
    let mut rest = part;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((key, value, left)) = split(rest) else {
            rest = &[];
            return Some(Err(StoreError::Failed(
                "a change in the log is unreadable".to_owned(),
            )));
        };
        rest = left;
        Some(Ok((key, value)))
    })
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, bytes) = bytes.split_first_chunk()?;
    let (value, bytes) = bytes.split_first_chunk()?;
    let (key, bytes) = bytes.split_at_checked(u16::from_le_bytes(*key).into())?;
    let (value, bytes) = bytes.split_at_checked(u16::from_le_bytes(*value).into())?;
    Some((key, value, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_return_from_parts_of_any_size() {
        let keys: Vec<Vec<u8>> = (0..3_000_u32)
            .map(|number| number.to_be_bytes().repeat(5))
            .collect();
        let given: Vec<(&[u8], &[u8])> = keys
            .iter()
            .map(|key| (key.as_slice(), &key[..key[3] as usize % 9]))
            .collect();
        let mut left = given.iter().copied();
        let parts: Vec<Vec<u8>> = std::iter::repeat_with(|| part(&mut left))
            .take_while(|part| !part.is_empty())
            .collect();
        assert!(
            parts.len() > 1 && parts.iter().all(|part| part.len() < PART_BYTES + 100),
            "{}",
            parts.len()
        );
        let found: Vec<_> = parts
            .iter()
            .flat_map(|part| rows(part))
            .map(Result::unwrap)
            .collect();
        assert_eq!(found, given);
    }

    #[test]
    fn part_that_is_cut_is_an_error() {
        let whole = part(&mut [(b"key".as_slice(), b"value".as_slice())].into_iter());
        for length in 1..whole.len() {
            assert!(rows(&whole[..length]).any(|row| row.is_err()), "{length}");
        }
        assert!(rows(&whole).all(|row| row.is_ok()));
    }

    #[test]
    fn log_parts_are_in_key_order() {
        let keys = [(1, 0), (1, 1), (2, 0), (300, 0), (300, 256)]
            .map(|(number, part)| PartKey { number, part });
        assert!(keys.map(PartKey::encode).is_sorted());
        assert_eq!(
            keys.map(|key| PartKey::decode(&key.encode())),
            keys.map(Some)
        );
        assert_eq!(PartKey::decode(&[0]), None);
        assert_eq!(PartKey::decode(&[0; 13]), None);
    }
}
