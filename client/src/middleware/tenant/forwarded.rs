//! Tenants by the address that trusted proxies name: `Forwarded` (RFC 7239), `X-Forwarded-For` or a header like it. A
//! caller can send any such header, and a proxy appends to it; so entries are counted from the right, and no further
//! than there are proxies.

use std::net::IpAddr;

use http::HeaderName;
use http::header::FORWARDED;

use crate::middleware::Head;

/// The most proxies in front of a service that are counted.
pub(super) const TRUSTED_HOPS_MAX: usize = 16;

/// Returns the address that the outermost of `hops` trusted proxies names. An entry that is empty or malformed counts as
/// one: to leave it out would move the count to what the caller sent.
pub(super) fn address(request: Head<'_>, header: &HeaderName, hops: usize) -> Option<IpAddr> {
    let mut left = hops;
    for value in request.headers.get_all(header).iter().rev() {
        let mut rest = Some(value.as_bytes());
        while let Some(list) = rest {
            let (before, entry) = if *header == FORWARDED { last_element(list)? } else { last_entry(list) };
            left -= 1;
            if left == 0 {
                let entry = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
                return super::address::parse(if *header == FORWARDED { node_of(entry)? } else { entry });
            }
            rest = before;
        }
    }
    None
}

/// A list without its last entry, if there is more, and that entry.
type Split<'a> = (Option<&'a [u8]>, &'a [u8]);

fn last_entry(list: &[u8]) -> Split<'_> {
    let comma = list.iter().rposition(|byte| *byte == b',');
    comma.map_or((None, list), |comma| (Some(&list[..comma]), &list[comma + 1..]))
}

/// Splits at the last comma outside of quotes; `None` for an element with a quote that does not end, or an escape: a
/// proxy writes neither, and read from the right they are ambiguous.
fn last_element(list: &[u8]) -> Option<Split<'_>> {
    let mut is_quoted = false;
    for at in (0..list.len()).rev() {
        match list[at] {
            b'\\' => return None,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some((Some(&list[..at]), &list[at + 1..])),
            _ => {}
        }
    }
    (!is_quoted).then_some((None, list))
}

/// Returns the value of the parameter `for` of an element, which must occur once.
fn node_of(element: &str) -> Option<&str> {
    let mut node = None;
    let mut is_quoted = false;
    let ends = |symbol: char| {
        is_quoted ^= symbol == '"';
        symbol == ';' && !is_quoted
    };
    for pair in element.split(ends) {
        let (name, value) = pair.trim_matches([' ', '\t']).split_once('=')?;
        if name.eq_ignore_ascii_case("for") {
            let unquoted = value.strip_prefix('"').map(|value| value.strip_suffix('"'));
            if node.replace(unquoted.unwrap_or(Some(value))?).is_some() {
                return None;
            }
        }
    }
    node
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use crate::middleware::tenant::tests::tenant_of;
    use crate::middleware::{Tenant, TenantError};
    use proptest::prelude::*;

    #[test]
    fn address_is_counted_from_the_right_and_no_further_than_there_are_proxies() {
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
            let headers: Vec<_> = values.iter().map(|value| ("x-forwarded-for", *value)).collect();
            assert_eq!(tenant_of(&tenant, &headers), expected, "{hops} {values:?}");
        }
    }

    #[test]
    fn forwarded_header_has_elements_with_parameters() {
        for (hops, values, expected) in [
            (1, &["for=192.0.2.1"][..], "192.0.2.1"),
            (1, &["For=192.0.2.1;proto=http;by=203.0.113.43"], "192.0.2.1"),
            (1, &["by=203.0.113.43; FOR=\"192.0.2.1:80\""], "192.0.2.1"),
            (1, &["for=\"[2001:db8:1:2::7]:4711\""], "2001:db8:1:2::/64"),
            (2, &["for=6.6.6.6, for=192.0.2.1, for=192.0.2.2"], "192.0.2.1"),
            (2, &["for=6.6.6.6", "for=192.0.2.1", "for=192.0.2.2;host=\"a,b;for=7.7.7.7\""], "192.0.2.1"),
            (1, &["for=\"6.6.6.6, for=192.0.2.1"], "192.0.2.1"),
            (2, &["for=\"6.6.6.6, for=192.0.2.1"], "default"),
            (1, &["for=6.6.6.6, for=\"192.0.2.1"], "default"),
            (1, &["for=\"\\\"192.0.2.1\""], "default"),
            (1, &["for=192.0.2.1;for=192.0.2.2"], "default"),
            (1, &["proto=http"], "default"),
            (1, &["for=unknown"], "default"),
            (1, &["for=_hidden"], "default"),
            (1, &["192.0.2.1"], "default"),
            (1, &["for=192.0.2.1;"], "default"),
            (1, &[""], "default"),
        ] {
            let tenant = Tenant::forwarded_address("forwarded", hops).unwrap();
            let headers: Vec<_> = values.iter().map(|value| ("forwarded", *value)).collect();
            assert_eq!(tenant_of(&tenant, &headers), expected, "{hops} {values:?}");
        }
    }

    #[test]
    fn number_of_proxies_is_checked() {
        for bad in [0, TRUSTED_HOPS_MAX + 1, usize::MAX] {
            assert_eq!(Tenant::forwarded_address("forwarded", bad).unwrap_err(), TenantError::Hops(bad));
        }
        assert!(matches!(Tenant::forwarded_address("x y", 1).unwrap_err(), TenantError::Header(_)));
    }

    proptest! {
        /// Whatever a caller sends, the entry of the outermost trusted proxy decides.
        #[test]
        fn caller_cannot_choose_its_address(
            sent in proptest::collection::vec("[ -~]{0,40}", 0..3), hops in 1_usize..4, is_forwarded: bool
        ) {
            let name = if is_forwarded { "forwarded" } else { "x-forwarded-for" };
            let tenant = Tenant::forwarded_address(name, hops).unwrap();
            let entry = |n: usize| if is_forwarded { format!("for=192.0.2.{n}") } else { format!("192.0.2.{n}") };
            let added: Vec<_> = (1..=hops).map(entry).collect();
            let mut values = sent;
            let last = values.pop().map_or(added.join(", "), |last| format!("{last}, {}", added.join(", ")));
            values.push(last);
            let headers: Vec<_> = values.iter().map(|value| (name, value.as_str())).collect();
            prop_assert_eq!(tenant_of(&tenant, &headers), "192.0.2.1");
        }
    }
}
