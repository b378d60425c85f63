//! The files of the console, which are part of the binary, and the headers that keep them to themselves: nothing comes
//! from elsewhere, and no other page can show them.

use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_admin::access::Routes;
use plimsoll_admin::security::Opened;
use rust_embed::Embed;
use xxhash_rust::xxh3::xxh3_64;

use crate::admin::{Refused, invalid, refused};

#[derive(Embed)]
#[folder = "console/dist"]
struct Files;

const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    // An upgrade is seen at once; an unchanged file is not sent again.
    ("cache-control", "no-cache"),
];
/// What the page says of itself as it is built, and where programs on this machine need no token.
const TOKEN: [&str; 2] = ["data-token=\"needed\"", "data-token=\"optional\""];

/// Routes of the page, which show nothing of the fleet. It asks for a token unless the port is open on loopback.
pub(crate) fn routes(security: &Opened) -> Routes {
    let is_open = security.access().is_open_on_loopback();
    let index = async move |RawQuery(query): RawQuery, headers: HeaderMap| match query {
        None => file("index.html", &headers, is_open),
        Some(_) => Err(invalid(
            "the console takes nothing after a `?`, since addresses are written to logs: open it without, and enter a \
             token in the page",
        )),
    };
    let other = async |Path(name): Path<String>, headers: HeaderMap| file(&name, &headers, false);
    Routes::new()
        .open(Method::GET, "/", index)
        .open(Method::GET, "/console/{file}", other)
}

fn file(name: &str, headers: &HeaderMap, is_open: bool) -> Result<Response, Refused> {
    let Some(file) = Files::get(name) else {
        let reason = "the console has no such file: open `/` of this port";
        return Err(refused(StatusCode::NOT_FOUND, reason));
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        _ => "image/svg+xml",
    };
    let body = match is_open {
        true => String::from_utf8_lossy(&file.data)
            .replace(TOKEN[0], TOKEN[1])
            .into_bytes(),
        false => file.data.into_owned(),
    };
    let tag = format!("\"{:016x}\"", xxh3_64(&body));
    if headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|it| *it == *tag)
    {
        return Ok((StatusCode::NOT_MODIFIED, HEADERS).into_response());
    }
    let head = [(header::CONTENT_TYPE, kind), (header::ETAG, &tag)];
    Ok((HEADERS, head, body).into_response())
}
