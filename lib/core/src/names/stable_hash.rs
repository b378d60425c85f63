//! A hash that is equal on every machine and in every version, for choices that many processes must make
//! alike without communicating.

/// Returns FNV-1a of the bytes. Its upper bits are weak for short names, so the finaliser of splitmix64 mixes
/// them (Steele, Lea and Flood, 2014). Spreads names evenly; names can be chosen to collide.
pub fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let hash = bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is part of the protocol: these values were computed independently of this code.
    #[test]
    fn known_values_never_change() {
        for (text, hash) in HASHES {
            assert_eq!(
                stable_hash(text.bytes()),
                hash,
                "{text}: {:#x}",
                stable_hash(text.bytes())
            );
        }
    }

    const HASHES: [(&str, u64); 3] = [
        ("", 0xf52a_15e9_a9b5_e89b),
        ("a", 0x02c0_bdbf_4814_20f8),
        ("checkout", 0x0728_c506_b4e6_f024),
    ];
}
