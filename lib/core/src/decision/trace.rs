//! The trace-id of W3C Trace Context, which a request keeps on its way through several services.

use std::num::NonZeroU128;

/// The trace-id of a request; never zero. Callers choose it freely, so it is a name and not a source of
/// randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The length of a `traceparent` of version 00 in bytes. Later versions begin with the same fields.
const LENGTH: usize = 55;
const VERSION_INVALID: u128 = 0xff;

impl TraceId {
    /// Builds the trace-id with this number, its first byte the most significant; `None` for 0, which names
    /// no trace.
    pub const fn new(id: u128) -> Option<Self> {
        match NonZeroU128::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// Parses the value of a `traceparent` header by W3C Trace Context, sections 3.2 and 4.3. Returns `None`
    /// if the value breaks a rule: letters are lower-case, neither trace-id nor parent-id is all zeros,
    /// version `ff` does not exist, version 00 is 55 bytes long, and a later version's additions follow a
    /// `-`.
    ///
    /// Reads at most the first 56 bytes, and neither blocks nor allocates.
    pub fn of_traceparent(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_first_chunk::<LENGTH>()?;
        let [version @ .., b'-'] = &known[..3] else {
            return None;
        };
        let [trace_id @ .., b'-'] = &known[3..36] else {
            return None;
        };
        let [parent_id @ .., b'-'] = &known[36..53] else {
            return None;
        };
        let (version, trace_id, parent_id) =
            (number(version)?, number(trace_id)?, number(parent_id)?);
        number(&known[53..])?;
        let ends_well = rest.is_empty() || version > 0 && rest[0] == b'-';
        if version == VERSION_INVALID || parent_id == 0 || !ends_well {
            return None;
        }
        Self::new(trace_id)
    }

    /// The 16 bytes in written order.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

/// Parses at most 32 lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

    #[test]
    fn traceparent_is_read_by_its_version() {
        for (value, id) in [
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                Some(ID),
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
                Some(ID),
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff",
                Some(ID),
            ),
            (
                "00-00000000000000000000000000000001-0000000000000001-00",
                Some(1),
            ),
            (
                "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-00",
                Some(u128::MAX),
            ),
            // Later versions, with and without additions.
            (
                "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                Some(ID),
            ),
            (
                "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-is-new",
                Some(ID),
            ),
            (
                "fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
                Some(ID),
            ),
            (
                "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.new",
                None,
            ),
            (
                "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-012",
                None,
            ),
            (
                "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-is-new",
                None,
            ),
            // Version 00 allows no additions.
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-is-new",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-",
                None,
            ),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", None),
            ("", None),
            // All zeros name no trace.
            (
                "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                None,
            ),
            // Capitals, signs, spaces and other separators.
            (
                "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067aa0ba902b7-01",
                None,
            ),
            (
                "CC-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
                None,
            ),
            (
                "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                " 0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
                None,
            ),
            (
                "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
                None,
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-012",
                None,
            ),
        ] {
            assert_eq!(
                TraceId::of_traceparent(value.as_bytes()),
                id.and_then(TraceId::new),
                "{value}"
            );
        }
        assert_eq!(TraceId::new(0), None);
        assert_eq!(
            TraceId::new(0x0102 << 112).unwrap().to_bytes()[..3],
            [1, 2, 0]
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_again(
            version in 0..0xff_u8,
            id in 1..=u128::MAX,
            parent in 1..=u64::MAX,
            flags: u8,
            more in proptest::option::of("[ -~]{0,40}"),
        ) {
            let more = more.filter(|_| version > 0).map_or(String::new(), |more| format!("-{more}"));
            let value = format!("{version:02x}-{id:032x}-{parent:016x}-{flags:02x}{more}");
            prop_assert_eq!(TraceId::of_traceparent(value.as_bytes()), TraceId::new(id));
        }

        #[test]
        fn no_value_breaks_the_reader(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            // Random bytes are not a traceparent: one would need 50 digits among them.
            prop_assert_eq!(TraceId::of_traceparent(&value), None);
        }

        #[test]
        fn one_bad_byte_spoils_the_traceparent(at in 0..55usize, byte: u8) {
            let mut value = *b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            prop_assume!(!byte.is_ascii_digit() && !(b'a'..=b'f').contains(&byte) && value[at] != byte);
            value[at] = byte;
            prop_assert_eq!(TraceId::of_traceparent(&value), None);
        }
    }
}
