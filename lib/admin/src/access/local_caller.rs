//! The check that a request was made by a program on this machine: not on another machine, not
//! through a proxy, and not by a web page. A page reaches loopback by its own name that it points
//! there (DNS rebinding), or across origins.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, header};
use plimsoll_core::exchange::{is_loopback, names_loopback};

/// Headers that proxies add, in addition to headers with the prefix [`FORWARDED_PREFIX`].
const FORWARDED: [&str; 3] = ["forwarded", "via", "x-real-ip"];
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// The header in which browsers state the source of a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks that a request was made by a program on this machine.
///
/// # Errors
/// The reason why the request may come from elsewhere.
pub(super) fn check(request: &Request) -> Result<(), String> {
    check_peer(request)?;
    check_host(request)?;
    let headers = request.headers();
    let is_forwarded = |name: &&HeaderName| {
        FORWARDED.contains(&name.as_str()) || name.as_str().starts_with(FORWARDED_PREFIX)
    };
    if let Some(name) = headers.keys().find(is_forwarded) {
        return Err(format!("it was forwarded: it has the header `{name}`"));
    }
    if request.method().is_safe() {
        return Ok(());
    }
    let is_same_site = |site: &HeaderValue| ["same-origin", "none"].iter().any(|same| site == same);
    if !headers.get_all(FETCH_SITE).iter().all(is_same_site) {
        return Err(format!(
            "a page of another site sent it: see its header `{FETCH_SITE}`"
        ));
    }
    if !headers
        .get_all(header::ORIGIN)
        .iter()
        .all(|origin| is_origin_of(origin, headers.get(header::HOST)))
    {
        return Err("a page of another site sent it: see its header `origin`".to_owned());
    }
    Ok(())
}

fn check_peer(request: &Request) -> Result<(), String> {
    match request.extensions().get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) if is_loopback(peer.ip()) => Ok(()),
        Some(ConnectInfo(peer)) => Err(format!("it came from {}", peer.ip())),
        None => Err("it came from an unknown address".to_owned()),
    }
}

/// Every name that the request gives to this machine must be one of loopback.
fn check_host(request: &Request) -> Result<(), String> {
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| host.to_str().unwrap_or_default());
    let mut names = hosts
        .chain(request.uri().authority().map(Authority::as_str))
        .peekable();
    if names.peek().is_none() {
        return Err("it has no header `host`".to_owned());
    }
    match names.find(|name| !is_local(name)) {
        Some(name) => Err(format!(
            "its host is `{name}`, not localhost or a loopback address"
        )),
        None => Ok(()),
    }
}

fn is_local(authority: &str) -> bool {
    // An authority may have a user before the host.
    let authority = Some(authority)
        .filter(|text| !text.contains('@'))
        .and_then(|text| text.parse().ok());
    authority.is_some_and(|authority: Authority| names_loopback(authority.host()))
}

fn is_origin_of(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let schemes = [&b"http://"[..], b"https://"];
    let origin = schemes
        .iter()
        .find_map(|scheme| origin.as_bytes().strip_prefix(*scheme));
    origin.is_some() && origin == host.map(HeaderValue::as_bytes)
}
