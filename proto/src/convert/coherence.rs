//! Conversions of the key and the salt of a coherent coin. The key is a secret, which no log may show.

use std::fmt;

use plimsoll_core::decision::coherent::{Coherence, CoinKey};

use super::DecodeError;
use crate::wire;

pub(super) fn encode_coherence(coherence: Coherence) -> wire::Coherence {
    wire::Coherence {
        key: coherence.key.to_bytes().to_vec(),
        salt: coherence.salt,
    }
}

pub(super) fn decode_coherence(coherence: wire::Coherence) -> Result<Coherence, DecodeError> {
    let key = <[u8; 16]>::try_from(coherence.key.as_slice());
    let key = key.map_err(|_| DecodeError::CoinKey(coherence.key.len()))?;
    Ok(Coherence {
        key: CoinKey::from_bytes(key),
        salt: coherence.salt,
    })
}

/// The generated message has no `Debug`, which would show the key.
impl fmt::Debug for wire::Coherence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coherence")
            .field("salt", &self.salt)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn coin_key_has_16_redacted_bytes() {
        let table: [(usize, Option<usize>); 5] = [
            (16, None),
            (0, Some(0)),
            (15, Some(15)),
            (17, Some(17)),
            (65_536, Some(65_536)),
        ];
        for (length, rejected) in table {
            let sent = wire::Coherence {
                key: vec![0xab; length],
                salt: 7,
            };
            let bucket = wire::BucketDirective {
                coherence: Some(sent.clone()),
                ..Default::default()
            };
            assert_eq!(
                wire::BucketDirective::decode(bucket.encode_to_vec().as_slice()).unwrap(),
                bucket
            );
            let shown = format!("{bucket:?} {sent:#?}");
            assert!(
                !shown.contains("ab") && !shown.contains("171") && shown.contains("salt: 7"),
                "{shown}"
            );
            match rejected {
                None => {
                    let expected = Coherence {
                        key: CoinKey::from_bytes([0xab; 16]),
                        salt: 7,
                    };
                    assert_eq!(decode_coherence(sent.clone()), Ok(expected));
                    assert_eq!(encode_coherence(expected), sent);
                }
                Some(length) => {
                    assert_eq!(decode_coherence(sent), Err(DecodeError::CoinKey(length)))
                }
            }
        }
    }
}
