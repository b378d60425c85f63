//! The complete table of routes and callers of an admin port, which a test of each tier compares with what it expects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, header};
use tower::ServiceExt;

use super::{
    Access, Needs, Role, Route, Routes, Rules, TOKEN_PREFIX, TOKEN_RANDOM_CHARS, TokenFile, TokenHash, Tokens,
};

/// The callers, in the order of the columns.
const CALLERS: [Caller; 8] = [
    Caller { token: None, ..Caller::PLAIN },
    Caller { token: Some("unknown"), ..Caller::PLAIN },
    Caller { token: Some("viewer"), ..Caller::PLAIN },
    Caller { token: Some("operator"), ..Caller::PLAIN },
    Caller { token: Some("admin"), ..Caller::PLAIN },
    Caller { open_on_loopback: true, ..Caller::PLAIN },
    Caller { metrics_need_token: true, ..Caller::PLAIN },
    Caller { token: Some("viewer"), metrics_need_token: true, ..Caller::PLAIN },
];

/// A caller on the machine itself, at a port with a tokens file and these rules.
#[derive(Clone, Copy)]
struct Caller {
    token: Option<&'static str>,
    open_on_loopback: bool,
    metrics_need_token: bool,
}

impl Caller {
    const PLAIN: Self = Self { token: None, open_on_loopback: false, metrics_need_token: false };
}

/// Sends a request to every route as every caller: without a token, with an unknown one, as viewer, operator and admin,
/// without a token where loopback is open, and without one and as viewer where metrics need one.
///
/// A line begins with the method, the path and the callers that the route answers, and a cell is the status. To that of
/// a refused request it adds the reason by which it was counted, and `unnamed` unless the answer names the role.
/// Bodies are no JSON, so that an accepted request changes nothing.
pub async fn table(routes: impl Fn() -> Routes) -> Vec<String> {
    let all: Vec<Route> = routes().iter().cloned().collect();
    let mut lines = Vec::new();
    for route in all {
        let mut cells = Vec::new();
        for caller in CALLERS {
            cells.push(cell(routes(), &route, caller).await);
        }
        let needs = match route.needs {
            Needs::Nothing => "nothing".to_owned(),
            Needs::Metrics => "metrics".to_owned(),
            Needs::Role(role) => role.to_string(),
        };
        lines.push(format!("{route} {needs} | {}", cells.join(" | ")));
    }
    lines
}

async fn cell(routes: Routes, route: &Route, caller: Caller) -> String {
    let roles = ["viewer", "operator", "admin"];
    let lines = roles.map(|role| format!("{role} {role} {}\n", TokenHash::of(&token(role))));
    let tokens: Tokens = lines.concat().parse().unwrap_or_default();
    let access = Access::new(Rules {
        tokens: Some(TokenFile::of(tokens)),
        open_on_loopback: caller.open_on_loopback,
        metrics_need_token: caller.metrics_need_token,
        ..Rules::default()
    });
    let mut request = Request::builder()
        .method(&route.method)
        .uri(route.path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(name) = caller.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token(name)));
    }
    let peer = SocketAddr::from((IpAddr::from(Ipv4Addr::LOCALHOST), 1));
    let Ok(request) = request.extension(ConnectInfo(peer)).body(Body::from("no JSON")) else {
        return "no request".to_owned();
    };
    let Ok(response) = routes.into_router(&access).oneshot(request).await;
    let status = response.status();
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return status.as_u16().to_string();
    }
    let body = to_bytes(response.into_body(), 1 << 16).await.unwrap_or_default();
    let needed = if let Needs::Role(role) = route.needs { role } else { Role::Viewer };
    let is_named = String::from_utf8_lossy(&body).contains(&format!("needs the role {needed}"));
    let counted = access.refused().into_iter().filter(|(_, count)| *count == 1);
    let counted = counted.map(|(reason, _)| format!(" {reason}"));
    let unnamed = if is_named { "" } else { " unnamed" };
    format!("{}{}{unnamed}", status.as_u16(), counted.collect::<String>())
}

fn token(name: &str) -> String {
    format!("{TOKEN_PREFIX}{name:0>TOKEN_RANDOM_CHARS$}")
}
