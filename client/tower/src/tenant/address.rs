//! Tenants by the address of the caller: an IPv4 address, or the /64 of an IPv6 address, which one caller usually has
//! to itself.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Found;
use crate::Head;

/// Room for the longest name.
const BYTES_MAX: usize = 64;

pub(super) fn peer(request: Head<'_>) -> Option<IpAddr> {
    let extensions = request.extensions;
    #[cfg(feature = "axum")]
    if let Some(peer) = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(peer.0.ip());
    }
    extensions
        .get::<SocketAddr>()
        .map(SocketAddr::ip)
        .or_else(|| extensions.get::<IpAddr>().copied())
}

pub(super) fn name<'a>(address: IpAddr) -> Option<Found<'a>> {
    let mut text = [0; BYTES_MAX];
    let mut rest = text.as_mut_slice();
    match address.to_canonical() {
        IpAddr::V4(address) => write!(rest, "{address}").ok()?,
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
            write!(rest, "{network}/64").ok()?;
        }
    }
    let length = BYTES_MAX - rest.len();
    Some(Found::own(std::str::from_utf8(text.get(..length)?).ok()?))
}

/// Reads an address as proxies write it: `192.0.2.7`, `192.0.2.7:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        return is_port(port)
            .then_some(address)?
            .parse::<Ipv6Addr>()
            .ok()
            .map(IpAddr::V6);
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let colon = text.find(':')?;
    is_port(&text[colon..])
        .then_some(&text[..colon])?
        .parse::<Ipv4Addr>()
        .ok()
        .map(IpAddr::V4)
}

/// Returns true for nothing, or a colon and the port of an address.
fn is_port(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else {
        return text.is_empty();
    };
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tenant;
    use http::Request;

    #[test]
    fn address_is_a_valid_name() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::", "2001:db8:1:2::/64"),
            ("::1", "::/64"),
            (
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "ffff:ffff:ffff:ffff::/64",
            ),
        ] {
            let name = name(address.parse().unwrap()).unwrap();
            assert_eq!(name.as_str(), expected);
            assert_eq!(plimsoll_core::names::check_name(name.as_str()), Ok(()));
        }
    }

    #[test]
    fn address_needs_no_port() {
        for (text, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7:0", Some("192.0.2.7")),
            ("192.0.2.7:_p-1", None),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:65535", Some("2001:db8::1")),
            ("[192.0.2.7]", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]80", None),
            ("[2001:db8::1]:", None),
            ("192.0.2.7:65536", None),
            ("192.0.2.7:+80", None),
            ("192.0.2.7:", None),
            ("192.0.2.07", None),
            ("192.0.2", None),
            ("fe80::1%eth0", None),
            ("unknown", None),
            ("_hidden", None),
            (" 192.0.2.7", None),
            ("", None),
        ] {
            assert_eq!(
                parse(text),
                expected.map(|address| address.parse().unwrap()),
                "{text}"
            );
        }
    }

    #[test]
    fn peer_is_the_address_of_the_connection() {
        let by_peer = Tenant::peer_address();
        let of = |request: &Request<()>| {
            let found = by_peer.find(Head::of(request));
            found.map_or("default".to_owned(), |found| found.as_str().to_owned())
        };
        let mut request = Request::new(());
        assert_eq!(of(&request), "default");
        request
            .extensions_mut()
            .insert(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(of(&request), "192.0.2.1");
        request
            .extensions_mut()
            .insert(SocketAddr::from(([192, 0, 2, 2], 80)));
        assert_eq!(of(&request), "192.0.2.2");
        #[cfg(feature = "axum")]
        {
            let info = axum::extract::ConnectInfo(SocketAddr::from(([192, 0, 2, 3], 80)));
            request.extensions_mut().insert(info);
            assert_eq!(of(&request), "192.0.2.3");
        }
    }
}
