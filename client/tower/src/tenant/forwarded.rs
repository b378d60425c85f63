//! Tenants by the address that trusted proxies name: `X-Forwarded-For` or a header like it. A
//! caller can send any such header, and a proxy appends to it; so entries are counted from the
//! right, at most the number of proxies.

use std::net::IpAddr;

use http::HeaderName;

use crate::Head;

pub(super) const TRUSTED_HOPS_MAX: usize = 16;

/// Returns the address that the outermost of `hops` trusted proxies names. An entry that is empty or malformed counts
/// as one: to leave it out would move the count to what the caller sent.
pub(super) fn address(request: Head<'_>, header: &HeaderName, hops: usize) -> Option<IpAddr> {
    let values = request.headers.get_all(header).iter().rev();
    let mut entries = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    let entry = std::str::from_utf8(entries.nth(hops.checked_sub(1)?)?).ok()?;
    super::address::parse(entry.trim_matches([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::tests::tenant_of;
    use crate::{Tenant, TenantError};
    use proptest::prelude::*;

    #[test]
    fn forwarded_address_is_counted_from_the_right() {
        for (hops, values, expected) in [
            (1, &["192.0.2.1"][..], "192.0.2.1"),
            (1, &["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
            (2, &["6.6.6.6, 192.0.2.1, 192.0.2.2"], "192.0.2.1"),
            (2, &["6.6.6.6", "192.0.2.1,192.0.2.2:80"], "192.0.2.1"),
            (2, &["6.6.6.6, 192.0.2.1", "192.0.2.2"], "192.0.2.1"),
            (3, &["192.0.2.1, 192.0.2.2"], "default"),
            (2, &["6.6.6.6, , 192.0.2.2"], "default"),
            (1, &["6.6.6.6,"], "default"),
            (1, &["6.6.6.6", ""], "default"),
            (1, &["2001:db8:1:2::7"], "2001:db8:1:2::/64"),
            (1, &["[2001:db8:1:2::7]:80"], "2001:db8:1:2::/64"),
            (1, &["unknown"], "default"),
            (1, &["192.0.2.1\t "], "192.0.2.1"),
            (1, &["\"192.0.2.1\""], "default"),
            (1, &[], "default"),
        ] {
            let tenant = Tenant::forwarded_address("X-Forwarded-For", hops).unwrap();
            let headers: Vec<_> = values
                .iter()
                .map(|value| ("x-forwarded-for", *value))
                .collect();
            assert_eq!(tenant_of(&tenant, &headers), expected, "{hops} {values:?}");
        }
    }

    #[test]
    fn number_of_proxies_is_checked() {
        for bad in [0, TRUSTED_HOPS_MAX + 1, usize::MAX] {
            assert_eq!(
                Tenant::forwarded_address("x-real-ip", bad).unwrap_err(),
                TenantError::Hops(bad)
            );
        }
        assert_eq!(
            Tenant::forwarded_address("Forwarded", 1).unwrap_err(),
            TenantError::Forwarded
        );
        assert!(matches!(
            Tenant::forwarded_address("x y", 1).unwrap_err(),
            TenantError::Header(_)
        ));
    }

    proptest! {
        /// The entry of the outermost trusted proxy decides, with any header of a caller.
        #[test]
        fn caller_cannot_choose_its_address(
            sent in proptest::collection::vec("[ -~]{0,40}", 0..3), hops in 1_usize..4
        ) {
            let name = "x-forwarded-for";
            let tenant = Tenant::forwarded_address(name, hops).unwrap();
            let added: Vec<_> = (1..=hops).map(|n| format!("192.0.2.{n}")).collect();
            let mut values = sent;
            let last = values.pop().map_or(added.join(", "), |last| format!("{last}, {}", added.join(", ")));
            values.push(last);
            let headers: Vec<_> = values.iter().map(|value| (name, value.as_str())).collect();
            prop_assert_eq!(tenant_of(&tenant, &headers), "192.0.2.1");
        }
    }
}
